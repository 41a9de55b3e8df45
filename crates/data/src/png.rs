//! The chunks of a PNG file, for what its decoder passes over.

/// The content of the first chunk of a kind, wherever in the file it stands.
pub fn chunk(bytes: &[u8], kind: [u8; 4]) -> Option<&[u8]> {
    let mut rest = bytes.get(8..)?;
    loop {
        let length = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        let content = rest.get(8..8usize.checked_add(length)?)?;
        if rest.get(4..8)? == kind {
            return Some(content);
        }
        rest = rest.get(length.checked_add(12)?..)?;
    }
}
