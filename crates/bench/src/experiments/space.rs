//! Bytes on disk for the bytes of the records: after loads in different orders, overwrites and
//! deletes.

use super::{Case, Experiment, Figure, SETTLE, Size, phase};
use crate::cell::{Durability, KeyKind, LoadOrder, Operation, Phase, Place};

fn case(size: Size, name: &str, load_order: LoadOrder, phases: Vec<Phase>) -> Case {
    Case {
        name: name.into(),
        keys: "random8",
        kind: KeyKind::Random8,
        count: size.scale(1_000_000),
        value_bytes: 100,
        spread: None,
        load_order,
        load_percent: 100,
        phases,
        place: Place::File,
        memory_limit_bytes: Some(size.limit(64 << 20).max(4 << 20)),
        durability: Durability::None,
        in_memory_group: false,
        shrink_by: None,
        seconds_limit: size.seconds(300),
    }
}

/// What files take.
pub fn space(size: Size) -> Experiment {
    let settle = |name: &str| phase(name, SETTLE, 1);
    let records = size.scale(1_000_000);
    let overwrite = |name: &str| phase(name, Operation::Overwrite {}, records).sequential();
    let delete = |percent| phase("delete", Operation::Delete { percent }, 0);
    let loaded = || vec![settle("loaded, settled")];
    Experiment {
        name: "space",
        claim: "files stay near the size of their records, and shrink when records go",
        figure: Figure::Space,
        competitors: &["hedgerow", "lmdb-batch", "redb-batch", "bf-tree"],
        skips: &[],
        cases: vec![
            case(size, "random inserts", LoadOrder::Shuffled, loaded()),
            case(size, "sorted bulk load", LoadOrder::Bulk, loaded()),
            case(size, "ascending inserts", LoadOrder::Ascending, loaded()),
            case(
                size,
                "overwrite all twice",
                LoadOrder::Shuffled,
                vec![
                    overwrite("overwrite"),
                    settle("overwritten, settled"),
                    overwrite("overwrite again"),
                    settle("overwritten twice, settled"),
                ],
            ),
            case(
                size,
                "delete 80 %",
                LoadOrder::Shuffled,
                vec![settle("loaded, settled"), delete(80), settle("deleted, settled")],
            ),
            case(
                size,
                "delete all",
                LoadOrder::Shuffled,
                vec![settle("loaded, settled"), delete(100), settle("deleted, settled")],
            ),
        ],
    }
}
