//! Names of optimizers that other trainers have and this one has not, with the one here that does most alike.

/// The name here, then those elsewhere (as configs of other programs write them).
const NEAREST: &[(&str, &[&str])] = &[
    ("adam", &["nadam", "adamax", "rmsprop", "rmsprop8bit", "rprop", "adadelta", "diffgrad", "adamp", "lamb", "lamb8bit"]),
    (
        "adamw",
        &["ademamix", "pagedademamix", "adopt", "adan", "stableadamw", "adabelief", "adapnm", "simplifiedademamix", "yogi", "laprop"],
    ),
    (
        "adamw8bit",
        &["ademamix8bit", "pagedademamix8bit", "adamw4bit", "adamwfp8", "galore", "galoreadamw8bit", "apollo", "fira", "adammini"],
    ),
    ("adamw_schedulefree", &["radamschedulefree", "schedulefreeradam", "sgdschedulefree", "schedulefreesgd", "adamwschedulefreeplus"]),
    ("adafactor", &["lomo", "adalomo", "sm3", "adafactorfused"]),
    ("automagic3", &["automagicpp"]),
    ("came", &["came8bit", "came4bit", "cameschedulefree"]),
    ("dadaptadam", &["dadaptadagrad", "dadaptadan", "dadaptadanip", "dadaptsgd", "dog", "ldog", "dowg"]),
    ("lion", &["tiger", "sophia", "sophiag", "signsgd", "cautiouslion"]),
    ("muon", &["soap", "shampoo", "scalableshampoo", "adamuon", "muonclip", "dion"]),
    ("prodigy", &["prodigyplusschedulefree", "prodigyplus", "mechanic", "prodigyadv"]),
    ("radam", &["ranger", "ranger21", "ranger25", "rangerqh"]),
    ("sgd", &["asgd", "lars", "lars8bit", "sgdw", "sgdp", "pid", "accsgd"]),
];

/// The optimizer here that is most like the one with this plain name elsewhere.
pub(super) fn nearest(wanted: &str) -> Option<&'static str> {
    NEAREST.iter().find(|(_, names)| names.contains(&wanted)).map(|(here, _)| *here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hyper::plain;
    use crate::optimizers::OPTIMIZERS;

    #[test]
    fn every_row_names_an_optimizer_of_the_list_and_none_that_is_in_it() {
        let known: Vec<String> =
            OPTIMIZERS.iter().flat_map(|entry| entry.aliases.iter().chain([&entry.name])).map(|name| plain(name)).collect();
        for (here, names) in NEAREST {
            assert!(OPTIMIZERS.iter().any(|entry| entry.name == *here), "{here}");
            for name in *names {
                assert!(plain(name) == *name && !known.contains(&plain(name)), "{name} is known here, or not written plainly");
            }
        }
    }
}
