//! `hedgerow pages STORE`: pages drawn byte by byte, and the tree as a picture.
//!
//! Walks the keyspace and draws one page of each kind that it has, or the one that `--page` names; with
//! `--svg` it draws the whole tree instead. What a byte of a page is for the engine tells
//! (`hedgerow::anatomy`); here it is only put into words and lines. Pages are private copies:
//! nothing is latched while they are drawn. A damaged page is shown as far as it can be, with what is
//! wrong with it, and ends with the exit code of damage.

mod svg;
mod text;

use crate::args::{Common, Format};
use crate::escape::escape;
use crate::failure::Failure;
use crate::output::{Out, create_new, is_same_file, is_standard};
use crate::{progress, store};
use clap::Args;
use hedgerow::anatomy::Anatomy;
use hedgerow::{Keyspace, PageId, PageKind, PageView, log_path};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Arguments of `pages`.
#[derive(Debug, Args)]
pub struct PagesArgs {
    /// Store file
    store: PathBuf,
    /// Draw this page [default: one page of each kind in the keyspace]
    #[arg(long, value_name = "ID", conflicts_with = "svg")]
    page: Option<u32>,
    /// Number of records to show of each page
    #[arg(long, value_name = "N", default_value_t = 6)]
    records: usize,
    /// Draw the tree to this new SVG file, or `-` for standard output; each node is a rectangle with its kind and fill
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// A page that is drawn.
struct Drawn {
    id: PageId,
    /// The page; `None` if it could not be read.
    anatomy: Option<Anatomy>,
    /// What is wrong with it.
    defects: Vec<String>,
    /// Its references to values that are not in it, by place.
    references: Vec<Reference>,
}

/// What a leaf has instead of a value.
struct Reference {
    /// Index of the record's slot.
    place: usize,
    /// The value's length and its runs in the file: offsets and lengths in bytes. Else what is wrong with it.
    extent: Result<(u64, Vec<(u64, u64)>), String>,
}

impl Drawn {
    fn new(keyspace: &Keyspace, view: &PageView<'_>, records: usize) -> Drawn {
        Drawn::of(keyspace, view.id, view.anatomy(records), view.defects())
    }

    fn of(
        keyspace: &Keyspace,
        id: PageId,
        anatomy: Option<Anatomy>,
        mut defects: Vec<String>,
    ) -> Drawn {
        let references = anatomy.iter().flat_map(|anatomy| &anatomy.references);
        let references: Vec<_> = references
            .map(|reference| {
                let extent = match reference.len_bytes() {
                    None => Err("it is in no known form".to_owned()),
                    Some(len_bytes) => match keyspace.extent_places(reference) {
                        Ok(runs) => Ok((len_bytes, runs)),
                        Err(error) => Err(error.to_string()),
                    },
                };
                Reference { place: reference.place, extent }
            })
            .collect();
        for reference in &references {
            if let Err(what) = &reference.extent {
                let place = reference.place;
                defects.push(format!("reference to the value of record {place}: {what}"));
            }
        }
        Drawn { id, anatomy, defects, references }
    }
}

/// Draws what was asked for.
pub fn run(common: &Common, args: &PagesArgs) -> Result<(), Failure> {
    if let Some(picture) = args.svg.as_ref().filter(|picture| !is_standard(picture)) {
        refuse_same_file(&args.store, picture)?;
        // Before the tree is read, which may take a while.
        if picture.symlink_metadata().is_ok() {
            return Err(refusal(picture));
        }
    }
    if common.format == Format::Json && args.svg.as_deref().is_some_and(is_standard) {
        let words = "a picture on standard output is SVG; --format json needs --svg FILE and applies to the report";
        return Err(Failure::Usage(words.to_owned()));
    }
    let db = store::open_read_only(common, &args.store)?;
    let keyspace = store::keyspace(&db, common, &args.store)?;
    if let Some(picture) = &args.svg {
        return draw_tree(common, &keyspace, &args.store, picture);
    }
    let drawn = match args.page {
        Some(id) => vec![the_page(&keyspace, PageId(id), args)?],
        None => examples(&keyspace, args)?,
    };
    let defects = drawn.iter().map(|page| page.defects.len() as u64).sum();
    Failure::damage(print(common, &drawn), defects)
}

fn print(common: &Common, drawn: &[Drawn]) -> Result<(), Failure> {
    let mut out = Out::new();
    for (number, page) in drawn.iter().enumerate() {
        match common.format {
            Format::Human => {
                if number > 0 {
                    out.line("")?;
                }
                text::print(&mut out, page)?;
            }
            Format::Json => out.json(&text::as_json(page))?,
        }
    }
    out.finish()
}

/// Shows each page of the tree, and on standard error how many those were.
fn walk(
    keyspace: &Keyspace,
    store: &Path,
    mut show: impl FnMut(PageView<'_>) -> ControlFlow<()>,
) -> Result<(), Failure> {
    let bar = progress::counter("reading pages");
    let walked = keyspace.show_pages(|view| {
        bar.inc(1);
        show(view)
    });
    bar.finish_and_clear();
    walked.map_err(store::failed("read", store))
}

/// The page with this id, by a walk, so that it is known to belong to the keyspace.
fn the_page(keyspace: &Keyspace, id: PageId, args: &PagesArgs) -> Result<Drawn, Failure> {
    let mut found = None;
    walk(keyspace, &args.store, |view| {
        if view.id != id {
            return ControlFlow::Continue(());
        }
        found = Some(Drawn::new(keyspace, &view, args.records));
        ControlFlow::Break(())
    })?;
    found.ok_or_else(|| {
        let (path, name) = (args.store.display(), escape(keyspace.name().as_bytes()));
        Failure::Other(format!("{path} has no page {} in keyspace `{name}`", id.0))
    })
}

/// One page of each kind, the second one where there are more, because the first and the last page of a
/// level have an open end; and all pages that are damaged in themselves.
fn examples(keyspace: &Keyspace, args: &PagesArgs) -> Result<Vec<Drawn>, Failure> {
    let mut of_kind: Vec<(PageKind, u32, Drawn)> = Vec::new();
    let mut damaged = Vec::new();
    walk(keyspace, &args.store, |view| {
        let kind = view.kind();
        let met = of_kind.iter().find(|(of, _, _)| Some(*of) == kind).map_or(0, |(_, met, _)| *met);
        // What every byte is for takes longer to find out than the page to read.
        if met == 2 && view.defects().is_empty() {
            return ControlFlow::Continue(());
        }
        let drawn = Drawn::new(keyspace, &view, args.records);
        if !drawn.defects.is_empty() {
            damaged.push(drawn);
        } else if let Some(kind) = kind {
            match of_kind.iter_mut().find(|(of, _, _)| *of == kind) {
                None => of_kind.push((kind, 1, drawn)),
                Some((_, met, second)) => (*met, *second) = (2, drawn),
            }
        }
        ControlFlow::Continue(())
    })?;
    of_kind.sort_by_key(|(kind, _, _)| *kind as u8);
    Ok(of_kind.into_iter().map(|(_, _, drawn)| drawn).chain(damaged).collect())
}

fn draw_tree(
    common: &Common,
    keyspace: &Keyspace,
    store: &Path,
    picture: &Path,
) -> Result<(), Failure> {
    let mut tree = svg::Picture::new(keyspace.name(), keyspace.page_bytes());
    walk(keyspace, store, |view| {
        tree.add(view.id, svg::Sound::of(&view));
        ControlFlow::Continue(())
    })?;
    if is_standard(picture) {
        let mut out = Out::new();
        let printed = out.bytes(tree.draw().as_bytes()).and_then(|()| out.finish());
        return Failure::damage(printed, tree.damaged());
    }
    write_new(picture, tree.draw().as_bytes())?;
    let printed = if common.format == Format::Json {
        let mut out = Out::new();
        let object = serde_json::json!({ "nodes": tree.nodes(), "damaged": tree.damaged() });
        out.json(&object).and_then(|()| out.finish())
    } else if common.quiet {
        Ok(())
    } else {
        let nodes = crate::size::show_count(tree.nodes());
        tell!("drew {nodes} nodes into {}", picture.display());
        Ok(())
    };
    Failure::damage(printed, tree.damaged())
}

/// Writes a file that must not be there.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written = create_new(path).and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => refusal(path),
        _ => Failure::Io(format!("cannot write {}", path.display()), error),
    })
}

fn refusal(path: &Path) -> Failure {
    Failure::Other(format!("{} exists; give a new file to --svg", path.display()))
}

/// A picture that was written over the store or its log would be the end of it.
fn refuse_same_file(store: &Path, picture: &Path) -> Result<(), Failure> {
    let store = store.canonicalize().unwrap_or_else(|_| store.to_owned());
    for (file, what) in [(&store, "the store itself"), (&log_path(&store), "the log of the store")]
    {
        if is_same_file(file, picture) {
            let path = picture.display();
            return Err(Failure::Other(format!("{path} is {what}; give another file to --svg")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow::anatomy::{Content, anatomy};

    #[test]
    fn a_damaged_reference_says_so() {
        let db = hedgerow::Options::new().temporary().unwrap();
        let keyspace = db.keyspace("songs").unwrap();
        keyspace.put(b"robin", b"short").unwrap();
        keyspace.put(b"wren", &[b'x'; 5000]).unwrap();
        let mut page = Vec::new();
        keyspace
            .show_pages(|view| {
                page = view.bytes.unwrap().to_vec();
                ControlFlow::Continue(())
            })
            .unwrap();
        let draw =
            |page: &[u8]| Drawn::of(&keyspace, PageId(7), Some(anatomy(page, 10)), Vec::new());
        let sound = draw(&page);
        assert!(sound.defects.is_empty(), "{:?}", sound.defects);
        let (len_bytes, runs) = sound.references[0].extent.clone().unwrap();
        assert_eq!((len_bytes, runs.len(), runs[0].1), (5000, 1, 5120));
        let entries = &sound.anatomy.as_ref().unwrap().entries;
        let Content::Value(stored) = &entries[1].content else { panic!("{entries:?}") };
        let at = page.windows(stored.len()).position(|bytes| bytes == stored).unwrap();
        // Another form; a length that does not go with the units; a place behind the end of the file.
        let outside = "is outside of the file";
        for (offset, words) in [(8, "no known form"), (18, outside), (35, outside)] {
            let mut damaged = page.clone();
            damaged[at + offset] ^= 0x40;
            let drawn = draw(&damaged);
            let is_named =
                |what: &String| what.contains("value of record 1") && what.contains(words);
            assert!(drawn.defects.iter().any(is_named), "{offset}: {:?}", drawn.defects);
            let json = text::as_json(&drawn);
            let what = json["records"][1]["damaged_reference"]["what"].as_str().unwrap();
            assert!(what.contains(words), "{what}");
            assert_eq!(json["records"][0]["value"], "short");
        }
    }
}
