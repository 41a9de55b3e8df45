//! Folders named as kohya's scripts want them: `10_sks dog` holds pictures of "sks dog", each shown ten times an epoch.

use base::some_of;
use std::collections::BTreeSet;

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

/// What the folders of a dataset's files say.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// Of each file; nothing if names mean nothing here.
    pub names: Option<Vec<Option<FolderName>>>,
    /// What the user should know of it.
    pub note: Option<String>,
}

/// Reads the names of the folders of files (paths relative to the dataset's).
pub fn of_files(files: &[&str], names: FolderNames) -> Found {
    let first = |file: &&str| file.split_once('/').and_then(|(folder, _)| parse(folder));
    let found: Vec<Option<FolderName>> = files.iter().map(first).collect();
    let likely = |name: &Option<FolderName>| name.as_ref().is_some_and(|n| (1..=MOST_BY_ITSELF).contains(&n.repeats));
    let (named, odd) = match names {
        FolderNames::Ignore => return Found::default(),
        FolderNames::Auto => apart(files, &found, likely),
        FolderNames::Obey => apart(files, &found, Option::is_some),
    };
    let obeyed = names == FolderNames::Obey || odd.is_empty() && !named.is_empty();
    let note = match (obeyed, odd.is_empty()) {
        (true, true) => Some(
            "its folders are named like `10_name`, so repeats and missing captions are taken from their names (kohya_folders: false \
             switches that off)"
                .to_string(),
        ),
        (true, false) => Some(format!(
            "kohya_folders is true, but no whole number and name (`10_name`) is given by {}: their pictures count once, and get no caption \
             from a name; rename them, or take them out",
            some_of(&odd)
        )),
        (false, _) if named.is_empty() => None,
        (false, _) => Some(format!(
            "folders named like `10_name` ({}) are taken for plain ones, since not all pictures lie in such: {}. Every picture counts once. \
             If the numbers are meant as repeats (1 to {MOST_BY_ITSELF}), rename or take out what differs, or set kohya_folders: true; \
             kohya_folders: false ends this note",
            some_of(&named),
            some_of(&odd)
        )),
    };
    Found { names: obeyed.then_some(found), note }
}

/// The folders of which `counts` holds and the others, each once; files beside the folders stand for themselves.
fn apart<'a>(
    files: &[&'a str],
    found: &[Option<FolderName>],
    counts: impl Fn(&Option<FolderName>) -> bool,
) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut named, mut odd) = (BTreeSet::new(), BTreeSet::new());
    for (file, found) in files.iter().zip(found) {
        let first = file.split_once('/').map_or(*file, |(folder, _)| folder);
        if counts(found) {
            named.insert(first)
        } else {
            odd.insert(first)
        };
    }
    (named.into_iter().collect(), odd.into_iter().collect())
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
            of_files(files, names).names.map(|found| found.iter().map(|n| n.as_ref().map_or(0, |n| n.repeats)).collect::<Vec<_>>())
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
