//! The latch laboratory as a command: every latch in every figure, and what is refused.

use crate::common::hedgerow_bench;
use hedgerow_bench::latches::figures::Figure;
use hedgerow_bench::latches::{Latch, Visitor, visit_all};
use hedgerow_bench::{record, report};

#[derive(Default)]
struct Names(Vec<&'static str>);

impl Visitor for Names {
    fn visit<L: Latch>(&mut self, name: &'static str, _shared: bool) {
        self.0.push(name);
    }
}

#[test]
fn the_smoke_size_has_every_latch_in_every_figure() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("record.jsonl");
    let output = hedgerow_bench().args(["latches", "--smoke", "--out"]).arg(&out).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let records = record::read(&[out]).unwrap();
    let mut names = Names::default();
    visit_all(&mut names);
    for name in names.0 {
        for figure in [Figure::Table3, Figure::Figure7, Figure::Figure8] {
            let mut of = records.latches.iter().filter(|one| one.latch == name);
            assert!(of.any(|one| one.figure == figure && one.operations > 0), "{name}: {figure:?}");
        }
        let bytes = records.latches.iter().find(|one| one.latch == name).map(|one| one.bytes);
        assert!(bytes <= Some(16), "{name}: {bytes:?}");
        assert!(bytes == Some(1) || !name.ends_with("1 byte"), "{name}: {bytes:?}");
    }
    let tables = report::markdown(&records);
    for title in ["Table 2", "Figure 7", "Figure 8"] {
        assert!(tables.contains(title), "{tables}");
    }
    assert!(tables.contains("| ticket, proportional | 8 |"), "{tables}");
}

#[test]
fn arguments_out_of_range_and_unknown_latches_are_refused() {
    for arguments in [
        ["--threads", "0"],
        ["--threads", "129"],
        ["--rounds", "0"],
        ["--milliseconds", "0"],
        ["--figure", "figure9"],
        ["--latch", "padlock"],
    ] {
        let output = hedgerow_bench().arg("latches").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty());
    }
}
