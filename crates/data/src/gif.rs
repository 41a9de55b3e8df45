//! The blocks of a GIF file, for what its decoder makes too much of.

/// Does it hold a second frame? A decoder would make a whole picture of each to tell.
pub fn has_second_frame(bytes: &[u8]) -> bool {
    let mut at = 13 + colours(bytes.get(10));
    let mut frames = 0;
    while let Some(block) = bytes.get(at) {
        at += match block {
            b'!' => 2,
            b',' if frames == 1 => return true,
            b',' => {
                frames += 1;
                // Its place, size and flags, its colours, and a number about its codes.
                11 + colours(bytes.get(at + 9))
            }
            _ => return false,
        };
        // Pieces with their length in front, to an empty one.
        while let Some(length) = bytes.get(at).filter(|length| **length > 0) {
            at += 1 + usize::from(*length);
        }
        at += 1;
    }
    false
}

/// Bytes of a table of colours, by the flags in front of it.
fn colours(flags: Option<&u8>) -> usize {
    flags.filter(|flags| **flags & 0x80 != 0).map_or(0, |flags| 3 << ((flags & 7) + 1))
}
