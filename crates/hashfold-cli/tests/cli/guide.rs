//! The commands in the documents print the output that the documents show.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// A block of commands in a document, and the output shown below it.
#[derive(Debug, PartialEq)]
struct Step {
    /// Line of the block's first command.
    line: usize,
    commands: String,
    /// Lines of the `text` block that follows; `None` if there is no such block.
    shown: Option<String>,
}

/// Precedes a block that no test runs, with the reason.
const NOT_RUN: &str = "<!-- not run by the tests: ";

/// Ends the output of a block; no command prints it.
const END: char = '\u{1e}';

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the `sh` blocks of a document with the `text` blocks right behind them.
fn steps(document: &str) -> Vec<Step> {
    let (mut steps, mut lines) = (Vec::new(), document.lines().zip(1..));
    let (mut is_run, mut before) = (true, "");
    while let Some((line, number)) = lines.next() {
        if line == "```sh" || line == "```text" {
            let block = lines.by_ref().map(|(line, _)| line).take_while(|line| *line != "```");
            let text: String = block.flat_map(|line| [line, "\n"]).collect();
            match (line, steps.last_mut()) {
                ("```sh", _) if is_run => {
                    steps.push(Step { line: number + 1, commands: text, shown: None });
                }
                ("```text", Some(step)) if before == "```sh" => step.shown = Some(text),
                _ => {}
            }
        }
        if !line.is_empty() {
            is_run = !line.starts_with(NOT_RUN);
            before = line;
        }
    }
    steps
}

/// Whether a text matches a pattern: `...` stands for any text within a line, and a line with only
/// `...` for any number of lines.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((part, rest)) = pattern.split_once("...") else { return pattern == text };
    let Some(text) = text.strip_prefix(part) else { return false };
    let is_line = (part.is_empty() || part.ends_with('\n')) && rest.starts_with('\n');
    if is_line && matches(&rest[1..], text) {
        return true;
    }
    let ends = text.char_indices().map(|(i, _)| i).chain([text.len()]);
    let reach = match text.find('\n') {
        Some(end) if !is_line => end,
        _ => text.len(),
    };
    ends.take_while(|end| *end <= reach).any(|end| matches(rest, &text[end..]))
}

/// Runs all blocks of a document in one shell, in a new folder with the example data.
#[track_caller]
fn check(document: &str) {
    let text = fs::read_to_string(repository().join(document)).unwrap();
    let steps = steps(&text);
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("examples/data");
    fs::create_dir_all(&data).unwrap();
    fs::copy(repository().join("examples/data/packages.csv"), data.join("packages.csv")).unwrap();
    let mut script = String::from("exec 2>&1\n");
    for step in &steps {
        script += &format!("{}\nprintf '{END}'\n", step.commands);
    }
    let command = Path::new(env!("CARGO_BIN_EXE_hashfold"));
    let path = format!("{}:{}", command.parent().unwrap().display(), env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-e", "-c", &script])
        .current_dir(folder.path())
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    for (Step { line, commands, shown }, got) in steps.iter().zip(output.split(END)) {
        let Some(shown) = shown else { continue };
        assert!(
            matches(shown, got),
            "{document}:{line}: these commands\n{commands}\nshould print\n{shown}\nbut print\n{got}"
        );
    }
    assert_eq!(output.matches(END).count(), steps.len(), "{document}: a command failed:\n{output}");
}

#[test]
fn the_commands_of_the_readme_print_what_it_shows() {
    check("README.md");
}

#[test]
fn the_commands_of_the_guide_to_tables_print_what_it_shows() {
    check("docs/guide/tables.md");
}

#[test]
fn the_commands_of_the_guide_to_stores_print_what_it_shows() {
    check("docs/guide/stores.md");
}

#[test]
fn the_commands_of_the_guide_to_deploying_print_what_it_shows() {
    check("docs/guide/deploy.md");
}

#[test]
fn the_commands_of_the_guide_to_filters_print_what_it_shows() {
    check("docs/guide/filters.md");
}

#[test]
fn the_commands_of_the_guide_to_sketches_print_what_it_shows() {
    check("docs/guide/sketches.md");
}

#[test]
fn the_commands_of_the_guide_to_summaries_print_what_it_shows() {
    check("docs/guide/summarize.md");
}

#[test]
fn the_commands_of_the_guide_to_maps_print_what_it_shows() {
    check("docs/guide/maps.md");
}

#[test]
fn three_dots_stand_for_a_part_of_a_line_or_for_lines() {
    let cases = [
        ("a\n", "a\n", true),
        ("a ... c\n", "a b c\n", true),
        ("a ...\n", "a b\n", true),
        ("a ...\n", "a b\nc\n", false),
        ("a\n...\nd\n", "a\nb\nc\nd\n", true),
        ("a\n...\nd\n", "a\nd\n", true),
        ("... a ... b\n", "1 a 2 a b\n", true),
        ("a\n", "b\n", false),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(matches(pattern, text), expected, "{pattern:?} {text:?}");
    }
}

#[test]
fn blocks_go_with_the_output_right_behind_them() {
    let document = "\
```sh
echo a
```
```text
a
```
words
```text
no output
```
<!-- not run by the tests: because -->
```sh
rm
```
```sh
true
```
";
    let step = |line, commands: &str, shown: Option<&str>| Step {
        line,
        commands: commands.into(),
        shown: shown.map(String::from),
    };
    let expected = vec![step(2, "echo a\n", Some("a\n")), step(16, "true\n", None)];
    assert_eq!(steps(document), expected);
}
