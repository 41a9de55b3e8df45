//! The pages of a TIFF file, and the fields of each: read here, since what they say goes before what is made of it.

/// More pages are not looked at: they bound how long a file can keep its reader.
const MOST_PAGES: usize = 1 << 10;

/// Numbers of a file, in its order of bytes and its width of offsets.
#[derive(Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
    is_little: bool,
    is_big: bool,
}

impl<'a> Reader<'a> {
    fn of(bytes: &'a [u8]) -> Option<Reader<'a>> {
        let is_little = bytes.first()? == &b'I';
        let mut reader = Reader { bytes, is_little, is_big: false };
        reader.is_big = reader.number(2, 2)? == 43;
        Some(reader)
    }

    fn number(&self, at: usize, length: usize) -> Option<u64> {
        let digits = self.bytes.get(at..at.checked_add(length)?)?.iter();
        let add = |sum: u64, digit: &u8| sum << 8 | u64::from(*digit);
        Some(if self.is_little { digits.rev().fold(0, add) } else { digits.fold(0, add) })
    }

    /// The number as it is written in the file.
    fn written(&self, number: u64, length: usize) -> Vec<u8> {
        if self.is_little { number.to_le_bytes()[..length].to_vec() } else { number.to_be_bytes()[8 - length..].to_vec() }
    }

    /// Bytes of an offset.
    fn wide(&self) -> usize {
        if self.is_big { 8 } else { 4 }
    }

    fn place(&self, at: usize) -> Option<usize> {
        usize::try_from(self.number(at, self.wide())?).ok()
    }
}

/// What belongs to one picture of the file.
pub struct Page<'a> {
    reader: Reader<'a>,
    start: usize,
    /// Where its fields are, and how many.
    fields: usize,
    count: usize,
}

/// All pages of a file that are whole.
pub fn pages(bytes: &[u8]) -> Vec<Page<'_>> {
    let mut pages: Vec<Page> = Vec::new();
    let Some(reader) = Reader::of(bytes) else { return pages };
    let mut link = if reader.is_big { 8 } else { 4 };
    while let Some((page, next)) = reader.place(link).filter(|start| *start > 0).and_then(|start| Page::at(reader, start)) {
        if pages.len() == MOST_PAGES || pages.iter().any(|seen| seen.start == page.start) {
            break;
        }
        pages.push(page);
        link = next;
    }
    pages
}

impl<'a> Page<'a> {
    /// The page whose fields begin at `start`, and where the place of the next stands.
    fn at(reader: Reader<'a>, start: usize) -> Option<(Page<'a>, usize)> {
        let counted = if reader.is_big { 8 } else { 2 };
        let count = usize::try_from(reader.number(start, counted)?).ok()?;
        let page = Page { reader, start, fields: start + counted, count };
        let end = count.checked_mul(page.field_bytes())?.checked_add(page.fields)?;
        reader.bytes.get(..end)?;
        Some((page, end))
    }

    /// Tag, kind, count, and the values or their place.
    fn field_bytes(&self) -> usize {
        4 + 2 * self.reader.wide()
    }

    fn field(&self, tag: u16) -> Option<usize> {
        let places = (0..self.count).map(|i| self.fields + i * self.field_bytes());
        places.into_iter().find(|at| self.reader.number(*at, 2) == Some(tag.into()))
    }

    pub fn has(&self, tag: u16) -> bool {
        self.field(tag).is_some()
    }

    /// Where the values of a field are, how many, and how long each is.
    fn values(&self, tag: u16) -> Option<(usize, usize, usize)> {
        let (at, reader) = (self.field(tag)?, self.reader);
        let length = match reader.number(at + 2, 2)? {
            1 | 2 | 6 | 7 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 | 16..=18 => 8,
            _ => return None,
        };
        let count = reader.place(at + 4)?;
        let inside = at + 4 + reader.wide();
        let total = count.checked_mul(length)?;
        let start = if total <= reader.wide() { inside } else { reader.place(inside)? };
        reader.bytes.get(start..start.checked_add(total)?)?;
        Some((start, count, length))
    }

    /// The bytes of a field; none if it is not there or not whole.
    pub fn bytes(&self, tag: u16) -> Option<&'a [u8]> {
        let (start, count, length) = self.values(tag)?;
        Some(&self.reader.bytes[start..start + count * length])
    }

    pub fn numbers(&self, tag: u16) -> Option<Vec<u64>> {
        let (start, count, length) = self.values(tag)?;
        (0..count).map(|i| self.reader.number(start + i * length, length)).collect()
    }

    pub fn number(&self, tag: u16) -> Option<u64> {
        let (start, count, length) = self.values(tag)?;
        if count > 0 { self.reader.number(start, length) } else { None }
    }

    /// What has to stand where in the file for this page to be its only one.
    pub fn alone(&self) -> [(usize, Vec<u8>); 2] {
        let wide = self.reader.wide();
        let end = self.fields + self.count * self.field_bytes();
        [(wide, self.reader.written(self.start as u64, wide)), (end, self.reader.written(0, wide))]
    }

    /// What has to stand where for a field to hold another number.
    pub fn with_number(&self, tag: u16, number: u64) -> Option<(usize, Vec<u8>)> {
        let (start, _, length) = self.values(tag)?;
        Some((start, self.reader.written(number, length)))
    }
}
