//! Folders named as kohya's scripts want them: `10_sks dog` holds pictures of "sks dog", each shown ten times an epoch.

/// What a folder's name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderName {
    pub repeats: u32,
    /// Caption of pictures without one.
    pub name: String,
}

/// Whether such names mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FolderNames {
    /// If every picture lies in a folder of such a name.
    #[default]
    Auto,
    Obey,
    Ignore,
}

/// A number beyond this is a year or a serial number, unless [`FolderNames::Obey`] says otherwise.
const MOST_BY_ITSELF: u32 = 500;

/// `10_name`; nothing for `CROP`, `1.5_x` or `x_10`.
pub fn parse(folder: &str) -> Option<FolderName> {
    let (number, name) = folder.split_once('_')?;
    let whole = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let repeats = number.parse().ok().filter(|_| whole)?;
    Some(FolderName { repeats, name: name.trim().to_string() })
}

/// What the folders of files (paths relative to the dataset's) say of each; nothing if names mean nothing here.
pub fn of_files(files: &[&str], names: FolderNames) -> Option<Vec<Option<FolderName>>> {
    let first = |file: &&str| file.split_once('/').and_then(|(folder, _)| parse(folder));
    let found: Vec<Option<FolderName>> = files.iter().map(first).collect();
    let likely = |name: &Option<FolderName>| name.as_ref().is_some_and(|n| (1..=MOST_BY_ITSELF).contains(&n.repeats));
    match names {
        FolderNames::Ignore => None,
        FolderNames::Auto if found.is_empty() || !found.iter().all(likely) => None,
        FolderNames::Auto | FolderNames::Obey => Some(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_a_whole_number_in_front_mean_repeats() {
        let name = |repeats, name: &str| Some(FolderName { repeats, name: name.into() });
        assert_eq!(parse("10_sks dog"), name(10, "sks dog"));
        assert_eq!((parse("5_"), parse("3_a_b")), (name(5, ""), name(3, "a_b")));
        for other in ["CROP", "1.5_x", "x_10", "_x", "-1_x", "99999999999_x", "10"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn names_count_by_themselves_only_where_every_picture_has_one() {
        let repeats = |files: &[&str], names| {
            of_files(files, names).map(|found| found.iter().map(|n| n.as_ref().map_or(0, |n| n.repeats)).collect::<Vec<_>>())
        };
        assert_eq!(repeats(&["10_a/x.png", "2_b/deep/y.png"], FolderNames::Auto), Some(vec![10, 2]));
        for mixed in [["10_a/x.png", "y.png"], ["10_a/x.png", "CROP/y.png"], ["2023_trip/x.png", "2024_trip/y.png"]] {
            assert_eq!(repeats(&mixed, FolderNames::Auto), None);
        }
        assert_eq!(repeats(&["10_a/x.png", "CROP/y.png", "600_z/q.png"], FolderNames::Obey), Some(vec![10, 0, 600]));
        assert_eq!(repeats(&["10_a/x.png"], FolderNames::Ignore), None);
        assert_eq!(repeats(&[], FolderNames::Auto), None);
    }
}
