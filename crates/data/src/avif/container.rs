//! What an AVIF file holds: items, what is said of them, and how they belong together (HEIF, ISO/IEC 23008-12).

use super::boxes::{Kind, Reader, name};
use crate::cicp::Cicp;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;

/// What is said of an item, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property<'a> {
    /// Width and height before anything below is done.
    Size(u32, u32),
    Icc(&'a [u8]),
    Cicp(Cicp),
    /// Quarter turns against the clock.
    Turn(u8),
    Mirror(Mirror),
    /// Width, height, and the offsets of the middle, as numerators and denominators.
    Crop([u32; 8]),
    /// What an auxiliary picture is for.
    Auxiliary(&'a [u8]),
    /// Which of the qualities in the stream is meant.
    OperatingPoint(u8),
    /// Nothing that changes the picture.
    Unneeded,
    Unknown(Kind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirror {
    /// Top and bottom change places.
    Vertical,
    /// Left and right do.
    Horizontal,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    File,
    ItemData,
}

/// A stretch of an item's data; length 0: all that is left.
#[derive(Clone, Copy, Debug)]
struct Extent {
    offset: u64,
    length: u64,
}

#[derive(Debug, Default)]
struct Item {
    kind: Kind,
    /// Nothing: its data lie where this reader doesn't look.
    source: Option<Source>,
    extents: Vec<Extent>,
    /// Indices of properties from 1, and whether a reader must know them.
    properties: Vec<(u16, bool)>,
}

#[derive(Debug)]
struct Reference {
    kind: Kind,
    from: u32,
    to: Vec<u32>,
}

#[derive(Debug)]
pub struct Container<'a> {
    file: &'a [u8],
    item_data: &'a [u8],
    /// It holds a film beside its picture.
    pub is_animated: bool,
    pub primary: u32,
    items: BTreeMap<u32, Item>,
    properties: Vec<Property<'a>>,
    references: Vec<Reference>,
}

impl<'a> Container<'a> {
    pub fn read(file: &'a [u8]) -> Result<Container<'a>> {
        let mut container = Container {
            file,
            item_data: &[],
            is_animated: false,
            primary: 0,
            items: BTreeMap::new(),
            properties: Vec::new(),
            references: Vec::new(),
        };
        let (mut rest, mut meta) = (Reader(file), None);
        while !rest.is_empty() {
            match rest.next_box() {
                Ok((kind, content)) if &kind == b"meta" => meta = meta.or(Some(content)),
                Ok((kind, _)) => container.is_animated |= &kind == b"moov",
                Err(error) if meta.is_none() => return Err(error),
                // What is missing shows where it is needed.
                Err(_) => break,
            }
        }
        let mut meta = meta.context("damaged AVIF file: it has no list of pictures (a film without a still picture?)")?;
        meta.version()?;
        container.read_meta(meta)?;
        Ok(container)
    }

    fn read_meta(&mut self, mut meta: Reader<'a>) -> Result<()> {
        while !meta.is_empty() {
            let (kind, content) = meta.next_box()?;
            match &kind {
                b"pitm" => self.read_primary(content)?,
                b"iinf" => self.read_items(content)?,
                b"iloc" => self.read_places(content)?,
                b"idat" => self.item_data = content.0,
                b"iprp" => self.read_properties(content)?,
                b"iref" => self.read_references(content)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_primary(&mut self, mut content: Reader) -> Result<()> {
        let (version, _) = content.version()?;
        self.primary = content.number(if version == 0 { 2 } else { 4 })? as u32;
        Ok(())
    }

    fn read_items(&mut self, mut content: Reader) -> Result<()> {
        let (version, _) = content.version()?;
        content.number(if version == 0 { 2 } else { 4 })?;
        while !content.is_empty() {
            let (kind, mut entry) = content.next_box()?;
            let (version, _) = entry.version()?;
            if &kind != b"infe" || version < 2 {
                continue;
            }
            let id = entry.number(if version == 2 { 2 } else { 4 })? as u32;
            entry.two()?;
            self.items.entry(id).or_default().kind = entry.kind()?;
        }
        Ok(())
    }

    fn read_places(&mut self, mut content: Reader) -> Result<()> {
        let (version, _) = content.version()?;
        let sizes = content.two()?;
        let [offset_size, length_size, base_size, index_size] = [12, 8, 4, 0].map(|shift| usize::from(sizes >> shift & 15));
        let lengths = [offset_size, length_size, base_size, index_size];
        ensure!(lengths.iter().all(|size| [0, 4, 8].contains(size)), "damaged AVIF file: places in numbers of other than 4 or 8 bytes");
        let id_size = if version < 2 { 2 } else { 4 };
        for _ in 0..content.number(id_size)? {
            let id = content.number(id_size)? as u32;
            let method = if version > 0 { content.two()? & 15 } else { 0 };
            let elsewhere = content.two()? != 0;
            let base = content.number(base_size)?;
            let count = content.two()?;
            // Extents without numbers would be as many as a few bytes declare.
            ensure!(count <= 1 || offset_size + length_size > 0, "damaged AVIF file: stretches of data without place or length");
            let item = self.items.entry(id).or_default();
            item.extents.clear();
            for _ in 0..count {
                if version > 0 {
                    content.number(index_size)?;
                }
                let offset = base.saturating_add(content.number(offset_size)?);
                item.extents.push(Extent { offset, length: content.number(length_size)? });
            }
            item.source = match method {
                _ if elsewhere => None,
                0 => Some(Source::File),
                1 => Some(Source::ItemData),
                _ => None,
            };
        }
        Ok(())
    }

    fn read_properties(&mut self, mut content: Reader<'a>) -> Result<()> {
        while !content.is_empty() {
            let (kind, mut inner) = content.next_box()?;
            match &kind {
                b"ipco" => {
                    while !inner.is_empty() {
                        let (kind, property) = inner.next_box()?;
                        self.properties.push(read_property(kind, property)?);
                    }
                }
                b"ipma" => self.read_associations(inner)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_associations(&mut self, mut content: Reader) -> Result<()> {
        let (version, flags) = content.version()?;
        for _ in 0..content.four()? {
            let id = content.number(if version == 0 { 2 } else { 4 })? as u32;
            for _ in 0..content.byte()? {
                let wide = flags & 1 == 1;
                let word = if wide { content.two()? } else { content.byte()?.into() };
                let mark = if wide { 0x8000 } else { 0x80 };
                let properties = &mut self.items.entry(id).or_default().properties;
                ensure!(properties.len() < MOST_PROPERTIES, "damaged AVIF file: an item with {MOST_PROPERTIES} properties");
                properties.push((word & (mark - 1), word & mark != 0));
            }
        }
        Ok(())
    }

    fn read_references(&mut self, mut content: Reader) -> Result<()> {
        let (version, _) = content.version()?;
        let size = if version == 0 { 2 } else { 4 };
        while !content.is_empty() {
            let (kind, mut inner) = content.next_box()?;
            let from = inner.number(size)? as u32;
            let count = inner.two()?;
            let to = (0..count).map(|_| Ok(inner.number(size)? as u32)).collect::<Result<Vec<u32>>>()?;
            ensure!(self.references.len() < MOST_REFERENCES, "damaged AVIF file: {MOST_REFERENCES} references");
            self.references.push(Reference { kind, from, to });
        }
        Ok(())
    }

    fn item(&self, id: u32) -> Result<&Item> {
        self.items.get(&id).with_context(|| format!("damaged AVIF file: there is no item {id}"))
    }

    pub fn kind(&self, id: u32) -> Result<Kind> {
        Ok(self.item(id)?.kind)
    }

    /// The properties of an item, in order. One that is unknown here and can't be ignored is an error that names it.
    pub fn properties(&self, id: u32) -> Result<Vec<&Property<'a>>> {
        let mut found = Vec::new();
        for (index, is_essential) in &self.item(id)?.properties {
            // 0 stands for none.
            let Some(property) = index.checked_sub(1).and_then(|index| self.properties.get(usize::from(index))) else { continue };
            match property {
                Property::Unknown(kind) if *is_essential => {
                    bail!("an AVIF picture that needs {}, which can't be read here; convert it to PNG", name(*kind))
                }
                property => found.push(property),
            }
        }
        Ok(found)
    }

    /// Width and height that an item declares.
    pub fn size(&self, id: u32) -> Result<(u32, u32)> {
        let mut sizes = self.properties(id)?.into_iter().filter_map(|property| match property {
            Property::Size(width, height) => Some((*width, *height)),
            _ => None,
        });
        sizes.next().context("damaged AVIF file: it doesn't say its size")
    }

    /// What an item refers to.
    pub fn references(&self, kind: Kind, from: u32) -> &[u32] {
        self.references.iter().find(|reference| reference.kind == kind && reference.from == from).map_or(&[], |reference| &reference.to)
    }

    /// The item that holds the transparency of another.
    pub fn alpha_of(&self, id: u32) -> Option<u32> {
        let auxiliary = self.references.iter().filter(|reference| &reference.kind == b"auxl" && reference.to.contains(&id));
        auxiliary.map(|reference| reference.from).find(|from| self.is_alpha(*from))
    }

    fn is_alpha(&self, id: u32) -> bool {
        const ALPHA: [&[u8]; 2] = [b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha", b"urn:mpeg:hevc:2015:auxid:1"];
        let properties = self.properties(id).unwrap_or_default();
        properties.iter().any(|property| matches!(property, Property::Auxiliary(kind) if ALPHA.contains(kind)))
    }

    /// The data of an item, put together; never more than the file holds.
    pub fn data(&self, id: u32) -> Result<Vec<u8>> {
        let item = self.item(id)?;
        let source = match item.source.context("an AVIF picture with data elsewhere, which can't be read here")? {
            Source::File => self.file,
            Source::ItemData => self.item_data,
        };
        let mut data = Vec::new();
        for extent in &item.extents {
            let start = usize::try_from(extent.offset).unwrap_or(usize::MAX);
            let rest = source.get(start..).context(MISSING)?;
            let length = if extent.length == 0 { rest.len() } else { usize::try_from(extent.length).unwrap_or(usize::MAX) };
            let stretch = rest.get(..length).context(MISSING)?;
            ensure!(data.len() + stretch.len() <= self.file.len(), "damaged AVIF file: an item uses its data several times");
            data.extend_from_slice(stretch);
        }
        ensure!(!data.is_empty(), "damaged AVIF file: an item is empty");
        Ok(data)
    }
}

/// More of them than any picture has; they bound how long a file can keep its reader.
const MOST_PROPERTIES: usize = 1 << 10;
const MOST_REFERENCES: usize = 1 << 16;

const MISSING: &str = "cut short: the end of the picture is missing";

fn read_property(kind: Kind, mut content: Reader) -> Result<Property> {
    Ok(match &kind {
        b"ispe" => {
            content.version()?;
            Property::Size(content.four()?, content.four()?)
        }
        b"colr" => read_colour(content)?,
        b"irot" => Property::Turn(content.byte()? & 3),
        b"imir" => Property::Mirror(if content.byte()? & 1 == 0 { Mirror::Vertical } else { Mirror::Horizontal }),
        b"clap" => {
            let mut numbers = [0; 8];
            for number in &mut numbers {
                *number = content.four()?;
            }
            Property::Crop(numbers)
        }
        b"auxC" => {
            content.version()?;
            Property::Auxiliary(content.0.split(|byte| *byte == 0).next().unwrap_or_default())
        }
        b"a1op" => Property::OperatingPoint(content.byte()? & 31),
        // 0xFFFF: no layer but the whole.
        b"lsel" if content.two()? == u16::MAX => Property::Unneeded,
        b"av1C" | b"pixi" | b"pasp" | b"a1lx" | b"clli" | b"mdcv" | b"cclv" | b"amve" => Property::Unneeded,
        _ => Property::Unknown(kind),
    })
}

fn read_colour(mut content: Reader) -> Result<Property> {
    Ok(match &content.kind()? {
        b"nclx" => {
            let [primaries, transfer, matrix] = [content.two()?, content.two()?, content.two()?];
            Property::Cicp(Cicp { primaries, transfer, matrix, is_full_range: content.byte()? & 0x80 != 0 })
        }
        b"prof" | b"rICC" => Property::Icc(content.0),
        _ => Property::Unneeded,
    })
}
