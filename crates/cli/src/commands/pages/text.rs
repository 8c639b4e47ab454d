//! A page as text: a map of its bytes, its regions, its fields and first records; and as JSON.

use super::{Drawn, Reference};
use crate::escape::escape;
use crate::failure::Failure;
use crate::output::Out;
use crate::size::show_count;
use hedgerow::PageKind;
use hedgerow::anatomy::{Anatomy, Content, Entry, Field, Mark, Part};
use serde_json::{Value as Json, json};

/// Letters to a line of the map.
const MAP_COLUMNS: usize = 64;
/// Most lines of the map: a letter stands for as many bytes as that needs.
const MAP_LINES: usize = 16;
/// Most bytes of a key or value that are shown to people.
const SHOWN_BYTES: usize = 40;
/// What lies inside of heap and values.
const INSIDE: [Part; 6] =
    [Part::Key, Part::Length, Part::Value, Part::Reference, Part::Dead, Part::Absent];
/// Most runs of an extent that are shown to people.
const SHOWN_RUNS: usize = 3;

/// The letter of the map for a part.
fn letter(part: Part) -> char {
    match part {
        Part::Header => 'H',
        Part::Fields => 'F',
        Part::Hints => 'i',
        Part::Heads => 'h',
        Part::Fingerprints => 'f',
        Part::Presence => 'p',
        Part::Slots => 's',
        Part::Values => 'V',
        Part::Gap => '.',
        Part::Heap => 'R',
        Part::Key => 'k',
        Part::Length => 'n',
        Part::Value => 'v',
        Part::Reference => 'r',
        Part::Dead => 'x',
        Part::Absent => '-',
        Part::Spare => '_',
        Part::Stem => 'S',
        Part::UpperFence => 'U',
        Part::LowerFence => 'L',
        _ => '?',
    }
}

/// Prints a page.
pub fn print(out: &mut Out, page: &Drawn) -> Result<(), Failure> {
    let Some(drawn) = &page.anatomy else {
        out.line(&format!("page {}: unreadable", page.id.0))?;
        return print_defects(out, page);
    };
    let size = show_count(drawn.parts.len() as u64);
    let kind = drawn.kind.map_or("page of an unknown kind", PageKind::name);
    let level = drawn.fields.iter().find(|field| field.name == "level");
    let level = level.map_or(0, |field| field.value);
    out.line(&format!("page {}: {kind}, level {level}, {size} bytes", page.id.0))?;
    print_defects(out, page)?;
    if drawn.readable {
        let fence = |fence: &Option<Vec<u8>>, none: &str| match fence {
            Some(key) => format!("`{}`", shown(key)),
            None => none.to_owned(),
        };
        let (lower, upper) = (fence(&drawn.lower, "the start"), fence(&drawn.upper, "the end"));
        out.line(&format!("keys after {lower}, up to {upper}"))?;
    }
    print_map(out, drawn)?;
    print_regions(out, drawn)?;
    out.line("\noffset  bytes  field")?;
    for field in &drawn.fields {
        let (name, said) = (field.name, said(field));
        out.line(&format!("{:>6} {:>6}  {name:<24} {said}", field.at, field.len))?;
    }
    print_entries(out, page, drawn)
}

fn print_defects(out: &mut Out, page: &Drawn) -> Result<(), Failure> {
    page.defects.iter().try_for_each(|defect| out.line(&format!("DAMAGED: {defect}")))
}

/// The value of a field, and what it means.
fn said(field: &Field) -> String {
    match field.name {
        "checksum" | "run" => field.meaning.clone(),
        _ if field.meaning.is_empty() => show_count(field.value),
        _ => format!("{} ({})", field.value, field.meaning),
    }
}

fn print_map(out: &mut Out, drawn: &Anatomy) -> Result<(), Failure> {
    let each = drawn.parts.len().div_ceil(MAP_COLUMNS * MAP_LINES).max(1);
    let stands = if each == 1 { "each byte" } else { "the first byte of every" };
    let bytes = if each == 1 { String::new() } else { format!(" {each} bytes") };
    out.line(&format!("\none letter for {stands}{bytes}"))?;
    for (line, parts) in drawn.parts.chunks(MAP_COLUMNS * each).enumerate() {
        let letters: String = parts.chunks(each).map(|bytes| letter(bytes[0])).collect();
        out.line(&format!("{:>6} {letters}", line * MAP_COLUMNS * each))?;
    }
    Ok(())
}

fn print_regions(out: &mut Out, drawn: &Anatomy) -> Result<(), Failure> {
    let row = |letter: char, at: String, len: usize, name: &str| {
        let share = 100.0 * len as f64 / drawn.parts.len().max(1) as f64;
        format!("{at:>6} {len:>6} {share:>5.1}%  {letter} {name}")
    };
    out.line("\noffset  bytes  share  region")?;
    for region in &drawn.regions {
        let within = &drawn.parts[region.at..region.at + region.len];
        let inside: Vec<_> = INSIDE
            .into_iter()
            .map(|part| (part, within.iter().filter(|&&of| of == part).count()))
            .filter(|&(_, len)| len > 0)
            .collect();
        let sign = if inside.is_empty() { letter(region.part) } else { ' ' };
        out.line(&row(sign, region.at.to_string(), region.len, region.part.name()))?;
        for (part, len) in inside {
            let name = format!("  of that: {}", part.name());
            out.line(&row(letter(part), String::new(), len, &name))?;
        }
    }
    Ok(())
}

fn print_entries(out: &mut Out, page: &Drawn, drawn: &Anatomy) -> Result<(), Failure> {
    if drawn.entries.is_empty() {
        return Ok(());
    }
    let (mark, content) = match drawn.entries[0].mark {
        Mark::Head(_) => ("head", if drawn.upper_child.is_some() { "child" } else { "value" }),
        Mark::Fingerprint(_) => ("hash", "value"),
        Mark::Number(_) => ("number", "value"),
    };
    out.line(&format!("\n place  {mark:<12} offset  bytes  key -> {content}"))?;
    for entry in &drawn.entries {
        let (key, mark) = (shown(&entry.key), marked(entry));
        let content = match (&entry.content, reference(page, entry)) {
            (Content::Child(child), _) => format!("page {}", child.0),
            (Content::Value(_), Some(reference)) => said_of_extent(reference),
            (Content::Value(value), None) => shown(value),
        };
        let (place, at, len) = (entry.place, entry.at, entry.len);
        out.line(&format!("{place:>6}  {mark:<12} {at:>6} {len:>6}  {key} -> {content}"))?;
    }
    let count = drawn.fields.iter().find(|field| field.name == "count");
    let more = count.map_or(0, |field| field.value.saturating_sub(drawn.entries.len() as u64));
    if more > 0 {
        out.line(&format!("        and {} more", show_count(more)))?;
    }
    Ok(())
}

/// What a record has instead of its value.
fn reference<'p>(page: &'p Drawn, entry: &Entry) -> Option<&'p Reference> {
    let found = page.references.binary_search_by_key(&entry.place, |reference| reference.place);
    found.ok().map(|at| &page.references[at])
}

fn said_of_extent(reference: &Reference) -> String {
    let (len_bytes, runs) = match &reference.extent {
        Ok(extent) => extent,
        Err(what) => return format!("DAMAGED reference: {what}"),
    };
    let bytes = show_count(*len_bytes);
    let from: Vec<_> = runs.iter().take(SHOWN_RUNS).map(|(at, _)| show_count(*at)).collect();
    let more = if runs.len() > SHOWN_RUNS { ", …" } else { "" };
    let (count, from) = (runs.len(), from.join("; "));
    match count {
        1 => format!("{bytes} bytes in an extent: 1 run from byte {from}"),
        _ => format!("{bytes} bytes in an extent: {count} runs from bytes {from}{more}"),
    }
}

fn marked(entry: &Entry) -> String {
    match entry.mark {
        Mark::Head(head) => escape(&head),
        Mark::Fingerprint(hash) => format!("{hash:02x}"),
        Mark::Number(number) => show_count(u64::from(number)),
    }
}

/// The text of some bytes, of many only the first.
fn shown(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN_BYTES) {
        Some(first) if bytes.len() > SHOWN_BYTES => {
            format!("{}… ({} bytes)", escape(first), bytes.len())
        }
        _ => escape(bytes),
    }
}

/// A page for programs: nothing is shortened.
pub fn as_json(page: &Drawn) -> Json {
    let Some(drawn) = &page.anatomy else {
        return json!({ "page": page.id.0, "kind": null, "defects": page.defects });
    };
    let regions = drawn.regions.iter().map(|region| {
        let within = &drawn.parts[region.at..region.at + region.len];
        let count = |part: &Part| within.iter().filter(|of| *of == part).count();
        let inside: serde_json::Map<_, _> = INSIDE
            .iter()
            .filter(|part| count(part) > 0)
            .map(|part| (part.name().to_owned(), json!(count(part))))
            .collect();
        json!({
            "region": region.part.name(),
            "offset": region.at,
            "bytes": region.len,
            "inside": inside,
        })
    });
    let fields = drawn.fields.iter().map(|field| {
        json!({
            "field": field.name,
            "offset": field.at,
            "bytes": field.len,
            "value": field.value,
            "meaning": field.meaning,
        })
    });
    let entries = drawn.entries.iter().map(|entry| {
        let (name, content) = match (&entry.content, reference(page, entry)) {
            (Content::Child(child), _) => ("child", json!(child.0)),
            (Content::Value(_), Some(Reference { extent: Ok((len_bytes, runs)), .. })) => {
                let run = |&(at, len): &(u64, u64)| json!({ "offset": at, "bytes": len });
                let runs: Vec<_> = runs.iter().map(run).collect();
                ("extent", json!({ "value_bytes": len_bytes, "runs": runs }))
            }
            (Content::Value(bytes), Some(Reference { extent: Err(what), .. })) => {
                ("damaged_reference", json!({ "what": what, "stored": escape(bytes) }))
            }
            (Content::Value(value), None) => ("value", json!(escape(value))),
        };
        json!({
            "place": entry.place,
            "mark": marked(entry),
            "offset": entry.at,
            "bytes": entry.len,
            "key": escape(&entry.key),
            name: content,
        })
    });
    json!({
        "page": page.id.0,
        "kind": drawn.kind.map(PageKind::name),
        "page_bytes": drawn.parts.len(),
        "defects": page.defects,
        "lower_fence": drawn.lower.as_deref().map(escape),
        "upper_fence": drawn.upper.as_deref().map(escape),
        "regions": regions.collect::<Vec<_>>(),
        "fields": fields.collect::<Vec<_>>(),
        "records": entries.collect::<Vec<_>>(),
        "upper_child": drawn.upper_child.map(|child| child.0),
    })
}
