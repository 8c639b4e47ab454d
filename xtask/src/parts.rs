//! The parts of the engine of which coverage and mutants tell apart, by the beginnings of their files' paths. Plain data.

/// A part of the engine.
pub struct Part {
    /// What it is called.
    pub name: &'static str,
    /// Where its files are: with a slash behind it a directory, else a file, or all whose paths begin like that.
    pub paths: &'static [&'static str],
}

/// What a defect in costs data.
pub const PARTS: &[Part] = &[
    Part {
        name: "format",
        paths: &[
            "crates/hedgerow/src/page/",
            "crates/hedgerow/src/checksum.rs",
            "crates/hedgerow/src/node/check.rs",
            "crates/hedgerow/src/node/layout.rs",
            "crates/hedgerow/src/store/superblock",
        ],
    },
    Part {
        name: "log",
        paths: &["crates/hedgerow/src/wal/", "crates/hedgerow/src/store/log_file.rs"],
    },
    Part { name: "map", paths: &["crates/hedgerow/src/space/"] },
    Part {
        name: "recovery",
        paths: &[
            "crates/hedgerow/src/store/open.rs",
            "crates/hedgerow/src/store/create.rs",
            "crates/hedgerow/src/store/replay.rs",
            "crates/hedgerow/src/store/preload.rs",
            "crates/hedgerow/src/store/log_extents.rs",
            "crates/hedgerow/src/store/reclaim.rs",
            "crates/hedgerow/src/store/checkpoint.rs",
            "crates/hedgerow/src/store/sweep.rs",
        ],
    },
    Part { name: "latch", paths: &["crates/sync/src/latch/", "crates/sync/src/parking.rs"] },
];

impl Part {
    /// Whether a file, by its path below the workspace, belongs to it.
    pub fn has(&self, path: &str) -> bool {
        self.paths.iter().any(|begin| path.starts_with(begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_path_of_a_part_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for path in PARTS.iter().flat_map(|part| part.paths) {
            let file = root.join(path);
            assert!(file.exists() || file.with_extension("rs").exists(), "{path}");
        }
    }
}
