//! The program `hedgerow-bench`: lists and runs experiments, and makes tables and pictures of
//! records.
//!
//! Records go to a file or to standard output, words to standard error. Exit codes: 0 everything
//! that ran gave figures; 1 something failed, was killed, or did different work; 2 wrong arguments;
//! 130 interrupted. Started as `hedgerow-bench cell CELL.json` it is one process of an experiment.

mod arguments;
#[path = "../../cli/src/signals.rs"]
mod signals;

use arguments::{
    Arguments, Command, CompactionArguments, LatchArguments, RecoveryArguments, RunArguments,
    TpccArguments,
};
use clap::Parser;
use hedgerow_bench::cell::KeyKind;
use hedgerow_bench::compaction;
use hedgerow_bench::experiments::{self, Case, Size};
use hedgerow_bench::external::{Programs, process};
use hedgerow_bench::latches::figures;
use hedgerow_bench::numbers;
use hedgerow_bench::record::{self, Line, Sink};
use hedgerow_bench::recovery;
use hedgerow_bench::report::{self, Over};
use hedgerow_bench::run::{self, Plan, WorkDirectory};
use hedgerow_bench::{chart, engines, harness, tpcc};
use signals::Second;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::List => words(print(&list())),
        Command::Competitors => words(print(&(engines::NAMES.join("\n") + "\n"))),
        Command::Cell { file } => harness::answer(&file, engines::run),
        Command::Run(arguments) => run_experiments(&arguments),
        Command::Recovery(arguments) => interruptible(|| recover(&arguments)),
        Command::Tpcc(arguments) => interruptible(|| run_tpcc(&arguments)),
        Command::Latches(arguments) => interruptible(|| measure_latches(&arguments)),
        Command::Compaction(arguments) => interruptible(|| compact(&arguments)),
        Command::PutUntilKilled { store, setting } => {
            words(recovery::put_until_killed(&store, &setting).map_err(|error| error.to_string()))
        }
        Command::Report { files, compact, wide, steps } => {
            words(record::read(&files).and_then(|records| {
                let over = if steps { Over::Previous } else { Over::First };
                print(&match (compact, wide) {
                    (true, _) => report::compact(&records, over),
                    (_, true) => report::wide(&records),
                    _ => report::markdown(&records),
                })
            }))
        }
        Command::Chart { files, out } => words(record::read(&files).and_then(|records| {
            let pictures = chart::draw(&records, &out)?;
            print(&pictures.iter().map(|path| format!("{}\n", path.display())).collect::<String>())
        })),
    }
}

/// Prints data. A reader that has gone away, such as `head`, has had enough.
fn print(text: &str) -> Result<(), String> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot print: {error}"))
        }
        _ => Ok(()),
    }
}

fn words(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("hedgerow-bench: {words}");
            ExitCode::FAILURE
        }
    }
}

fn list() -> String {
    let mut lines = Vec::new();
    for experiment in experiments::all(Size::Full) {
        lines.push(format!("{}\n    {}", experiment.name, experiment.claim));
        lines.push(format!("    competitors: {}", experiment.competitors.join(", ")));
        for case in &experiment.cases {
            let file = if case.kind == KeyKind::File {
                format!(" from --keys {}=FILE", case.keys)
            } else {
                String::new()
            };
            let Case { name, count, value_bytes, .. } = case;
            lines.push(format!("    {name}: {count} keys{file}, {value_bytes} bytes a value"));
            let phases: Vec<&str> = case.phases.iter().map(|phase| phase.name.as_str()).collect();
            lines.push(format!("        {}", phases.join(", ")));
        }
        lines.push(String::new());
    }
    lines.join("\n")
}

fn run_experiments(arguments: &RunArguments) -> ExitCode {
    let plan = match plan(arguments) {
        Ok(plan) => plan,
        Err(words) => {
            eprintln!("hedgerow-bench: {words}");
            return ExitCode::from(2);
        }
    };
    interruptible(|| {
        let mut sink = Sink::new(arguments.out.as_deref())?;
        let tally = run::run(&plan, &mut sink, |line| eprintln!("{line}"))?;
        eprintln!(
            "{} measured, {} absent or unsupported, {} failed, {} did different work",
            tally.measured, tally.absent, tally.failed, tally.mismatched
        );
        Ok(if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Does `work`, which looks at [`process::is_interrupted`] now and then.
fn interruptible(work: impl FnOnce() -> Result<ExitCode, String>) -> ExitCode {
    // A second Ctrl-C changes nothing: the first one ends what runs within milliseconds.
    let flag = process::interrupt_flag();
    if let Err(error) = signals::set_on_interrupt(flag, Second::ChangesNothing) {
        return words(Err(format!("cannot handle interrupts: {error}")));
    }
    match work() {
        Err(words) if process::is_interrupted() => {
            eprintln!("hedgerow-bench: {words}");
            ExitCode::from(INTERRUPTED)
        }
        Ok(code) => code,
        Err(error) => words(Err(error)),
    }
}

fn recover(arguments: &RecoveryArguments) -> Result<ExitCode, String> {
    let size = Size::from(arguments.size);
    let mut sink = Sink::new(arguments.out.as_deref())?;
    let above = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let work = WorkDirectory::new(&above)?;
    let program = this_program()?;
    sink.write(&Line::Run(run::header(size)?))?;
    for round in 1..=arguments.rounds {
        for setting in recovery::settings(size) {
            let found = setting.run(round, work.as_ref(), &program);
            if process::is_interrupted() {
                return Err("interrupted; the records until now are kept".into());
            }
            let found = found.map_err(|error| error.to_string())?;
            sink.write(&Line::Recovered(found))?;
            let (mib, target) = (found.store_bytes >> 20, setting.target_ms);
            let (puts, open) = (found.puts as f64 / found.put_seconds, found.open_seconds);
            let rate = numbers::show_number(puts);
            eprintln!(
                "{round:>3}. {mib} MiB, target {target} ms: {rate} puts/s, opened in {open:.2} s"
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Exit code 2 for what is refused.
fn run_tpcc(arguments: &TpccArguments) -> Result<ExitCode, String> {
    let mut sink = Sink::new(arguments.out.as_deref())?;
    let outcome =
        tpcc::run::run(&arguments.place(), &arguments.setting(), &process::is_interrupted);
    let measured = match outcome {
        Ok(measured) => measured,
        Err(tpcc::Error::Refused(words)) => {
            eprintln!("hedgerow-bench: {words}");
            return Ok(ExitCode::from(2));
        }
        Err(error) => return Err(error.to_string()),
    };
    let size = if arguments.smoke { Size::Smoke } else { Size::Full };
    sink.write(&Line::Run(run::header(size)?))?;
    let rate = numbers::show_number(measured.per_second);
    eprintln!("{rate} transactions/s; the twelve consistency conditions hold");
    sink.write(&Line::Tpcc(Box::new(measured)))?;
    Ok(ExitCode::SUCCESS)
}

fn measure_latches(arguments: &LatchArguments) -> Result<ExitCode, String> {
    let mut sink = Sink::new(arguments.out.as_deref())?;
    let size = if arguments.smoke { Size::Smoke } else { Size::Full };
    sink.write(&Line::Run(run::header(size)?))?;
    let mut cells = 0;
    figures::run(&arguments.setting(), &mut |measured| {
        cells += 1;
        sink.write(&Line::Latch(measured))?;
        if process::is_interrupted() {
            return Err("interrupted; the records until now are kept".into());
        }
        Ok(())
    })?;
    if cells == 0 {
        eprintln!("hedgerow-bench: no latch has such a name");
        return Ok(ExitCode::from(2));
    }
    Ok(ExitCode::SUCCESS)
}

fn compact(arguments: &CompactionArguments) -> Result<ExitCode, String> {
    let size = Size::from(arguments.size);
    let urls = match &arguments.urls {
        Some(path) => read_lines(path)?,
        None => Vec::new(),
    };
    let above = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let work = WorkDirectory::new(&above)?;
    if let Some(setting) = &arguments.one {
        let setting: compaction::Setting =
            serde_json::from_str(setting).map_err(|error| format!("not a setting: {error}"))?;
        let found = setting.run(1, work.as_ref(), &urls).map_err(|error| error.to_string())?;
        println!("{}", serde_json::to_string(&found).map_err(|error| error.to_string())?);
        return Ok(ExitCode::SUCCESS);
    }
    let program = this_program()?;
    let mut counted: Vec<&OsStr> = vec!["compaction".as_ref()];
    if let Some(path) = &arguments.urls {
        counted.extend([OsStr::new("--urls"), path.as_os_str()]);
    }
    counted.extend([OsStr::new("--dir"), above.as_os_str(), OsStr::new("--one")]);
    let mut sink = Sink::new(arguments.out.as_deref())?;
    sink.write(&Line::Run(run::header(size)?))?;
    for round in 1..=arguments.rounds {
        for setting in compaction::settings(size, urls.len()) {
            let found = match arguments.instructions {
                true => setting.run_counted(&program, &counted, work.as_ref()),
                false => setting.run(round, work.as_ref(), &urls),
            };
            if process::is_interrupted() {
                return Err("interrupted; the records until now are kept".into());
            }
            let found = found.map_err(|error| error.to_string())?;
            sink.write(&Line::Compacted(found))?;
            let ((leaves, leaves_after), (file, file_after)) =
                (found.leaves_over_payload(), found.file_over_payload());
            eprintln!(
                "{round:>3}. {setting:?}: leaves {leaves:.3} -> {leaves_after:.3}, file {file:.3} -> {file_after:.3}"
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The lines of a file, each once.
fn read_lines(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let text = std::fs::read(path)
        .map_err(|error| format!("cannot read the keys {}: {error}", path.display()))?;
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let mut lines: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).collect();
    lines.sort_unstable();
    lines.dedup();
    Ok(lines)
}

fn this_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("cannot tell where this program is: {error}"))
}

fn plan(arguments: &RunArguments) -> Result<Plan, String> {
    let size = Size::from(arguments.size);
    let experiments: Result<Vec<_>, String> =
        arguments.experiments.iter().map(|name| experiments::find(name, size)).collect();
    let program = this_program()?;
    Ok(Plan {
        experiments: experiments?,
        size,
        competitors: arguments.competitor.clone(),
        cases: arguments.case.clone(),
        pairs: arguments.pairs,
        instructions: arguments.instructions,
        program,
        builds: arguments.build.clone(),
        peers: arguments.peers.clone(),
        programs: Programs::new(arguments.external_dir.clone()),
        keys: arguments.keys.iter().cloned().collect(),
        directory: arguments.dir.clone().unwrap_or_else(std::env::temp_dir),
        seconds_limit: arguments.seconds_limit,
    })
}

/// `NAME=PATH`.
fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(path)))
        }
        _ => Err(format!("`{text}` is not NAME=PATH")),
    }
}
