//! `hedgerow pages STORE`: pages drawn byte by byte, and the tree as a picture.
//!
//! Walks the keyspace and draws one page of each kind that it has, or the one that `--page` names; with
//! `--svg` it draws the whole tree instead. What a byte of a page is for the engine tells
//! (`hedgerow::node::anatomy`); here it is only put into words and lines. Pages are private copies:
//! nothing is latched while they are drawn. A damaged page is shown as far as it can be, with what is
//! wrong with it, and ends with the exit code of damage.

mod svg;
mod text;

use crate::args::{Common, Format};
use crate::failure::Failure;
use crate::output::Out;
use crate::store;
use clap::Args;
use hedgerow::node::anatomy::{Anatomy, anatomy};
use hedgerow::page::header::PageKind;
use hedgerow::{Keyspace, PageId};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Arguments of `pages`.
#[derive(Debug, Args)]
pub struct PagesArgs {
    /// Store file
    store: PathBuf,
    /// Draw this page [default: one page of each kind that the keyspace has]
    #[arg(long, value_name = "ID", conflicts_with = "svg")]
    page: Option<u32>,
    /// First records of each page to show
    #[arg(long, value_name = "N", default_value_t = 6)]
    records: usize,
    /// Draw the tree into this file, as SVG: each node a rectangle with its kind and fill
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
}

/// Draws what was asked for.
pub fn run(common: &Common, args: &PagesArgs) -> Result<(), Failure> {
    if let Some(picture) = &args.svg {
        refuse_same_file(&args.store, picture)?;
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
    out.finish()?;
    damage(drawn.iter().map(|page| page.defects.len()).sum())
}

/// The page with this id, by a walk, so that it is known to belong to the keyspace.
fn the_page(keyspace: &Keyspace, id: PageId, args: &PagesArgs) -> Result<Drawn, Failure> {
    let mut found = None;
    let walked = keyspace.show_pages(|view| {
        if view.id != id {
            return ControlFlow::Continue(());
        }
        let anatomy = view.bytes.map(|bytes| anatomy(bytes, args.records));
        let defects = view.defects.iter().map(ToString::to_string).collect();
        found = Some(Drawn { id, anatomy, defects });
        ControlFlow::Break(())
    });
    walked.map_err(store::failed("read", &args.store))?;
    found.ok_or_else(|| {
        let (path, name) = (args.store.display(), keyspace.name());
        Failure::Other(format!("{path} has no page {} in keyspace `{name}`", id.0))
    })
}

/// One page of each kind, the second one where there are more, because the first and the last page of a
/// level have an open end; and all pages that are damaged.
fn examples(keyspace: &Keyspace, args: &PagesArgs) -> Result<Vec<Drawn>, Failure> {
    let mut of_kind: Vec<(PageKind, u32, Drawn)> = Vec::new();
    let mut damaged = Vec::new();
    let walked = keyspace.show_pages(|view| {
        let defects: Vec<_> = view.defects.iter().map(ToString::to_string).collect();
        let kind = view.bytes.and_then(hedgerow::page::header::kind);
        let draw = || view.bytes.map(|bytes| anatomy(bytes, args.records));
        if !defects.is_empty() {
            damaged.push(Drawn { id: view.id, anatomy: draw(), defects });
        } else if let Some(kind) = kind {
            match of_kind.iter_mut().find(|(of, _, _)| *of == kind) {
                None => of_kind.push((kind, 1, Drawn { id: view.id, anatomy: draw(), defects })),
                Some((_, seen, drawn)) => {
                    *seen += 1;
                    if *seen == 2 {
                        *drawn = Drawn { id: view.id, anatomy: draw(), defects };
                    }
                }
            }
        }
        ControlFlow::Continue(())
    });
    walked.map_err(store::failed("read", &args.store))?;
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
    let walked = keyspace.show_pages(|view| {
        tree.add(view.bytes, view.id, !view.defects.is_empty());
        ControlFlow::Continue(())
    });
    walked.map_err(store::failed("read", store))?;
    let failed = |error| Failure::Io(format!("cannot write {}", picture.display()), error);
    std::fs::write(picture, tree.draw()).map_err(failed)?;
    if common.format == Format::Json {
        let mut out = Out::new();
        out.json(&serde_json::json!({ "nodes": tree.nodes(), "damaged": tree.damaged() }))?;
        out.finish()?;
    } else {
        let nodes = crate::size::show_count(tree.nodes());
        eprintln!("drew {nodes} nodes into {}", picture.display());
    }
    damage(tree.damaged() as usize)
}

fn damage(defects: usize) -> Result<(), Failure> {
    if defects == 0 { Ok(()) } else { Err(Failure::Damage(defects as u64)) }
}

/// A picture that was written over the store would be the end of it.
fn refuse_same_file(store: &Path, picture: &Path) -> Result<(), Failure> {
    let same = match (store.canonicalize(), picture.canonicalize()) {
        (Ok(store), Ok(picture)) => store == picture,
        _ => false,
    };
    if same {
        let path = picture.display();
        return Err(Failure::Other(format!("{path} is the store; name another file for --svg")));
    }
    Ok(())
}
