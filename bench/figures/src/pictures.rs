//! The pictures of all commands, which can be drawn again from files of results.

use crate::{
    Command, Options, Result, cascade, construction, growth, hll, queries, queues, sal,
    sheet::{self, Draw},
    sizes, tradeoff, updates, voldemort,
};
use std::path::Path;

/// A picture of a file of results.
#[derive(Clone, Copy)]
struct Picture {
    /// Default folder of the file.
    folder: &'static str,
    /// Name of the picture, without its extension.
    name: &'static str,
    /// Name of the file, without its extension.
    results: &'static str,
    draw: Draw,
}

/// Returns the picture that has the name of its file.
const fn picture(folder: &'static str, name: &'static str, draw: Draw) -> Picture {
    Picture { folder, name, results: name, draw }
}

/// Returns another picture of the same file.
const fn another(picture: Picture, name: &'static str, draw: Draw) -> Picture {
    Picture { name, draw, ..picture }
}

const ECT: &str = "results/ect";
const STORE: &str = "results/store";
const VOLDEMORT: &str = "results/voldemort";
const CASCADE: &str = "results/cascade";

const SAL: &str = "results/sal";
const HLL: &str = "results/hll";
const QUEUES: &str = "results/queues";

/// The errors of intersections.
const INTERSECTIONS: Picture = picture(HLL, "hll-intersections", hll::draw);

const PICTURES: [Picture; 30] = [
    picture(ECT, "fig3", sizes::draw_3),
    picture(ECT, "fig6", sizes::draw_6),
    picture(ECT, "fig7", construction::draw_7),
    picture(ECT, "table3", construction::draw_table_3),
    picture(ECT, "fig8", construction::draw_8),
    picture(ECT, "fig9", growth::draw),
    picture(ECT, "fig10", tradeoff::draw_10),
    picture(ECT, "fig11", tradeoff::draw_11),
    picture(ECT, "fig12", construction::draw_12),
    picture(ECT, "table5", construction::draw_table_5),
    picture(ECT, "table1", tradeoff::draw_table_1),
    picture(ECT, "table4", queries::draw),
    picture(STORE, "updates", updates::draw),
    picture(VOLDEMORT, "voldemort-lookups", voldemort::draw_lookups),
    picture(VOLDEMORT, "voldemort-builds", voldemort::draw_builds),
    picture(CASCADE, "cascade-fig3", cascade::draw_figure_3),
    picture(CASCADE, "cascade-quotient", cascade::draw_quotient),
    picture(CASCADE, "cascade-lookups", cascade::draw_lookups),
    picture(CASCADE, "cascade-tombstones", cascade::draw_tombstones),
    picture(SAL, "sal-replication", sal::draw_replication),
    INTERSECTIONS,
    another(INTERSECTIONS, "hll-envelopes", hll::draw_envelopes),
    another(INTERSECTIONS, "hll-ratios", hll::draw_ratios),
    picture(HLL, "hll-cut-offs", hll::draw_cut_offs),
    picture(HLL, "hll-histograms", hll::draw_histograms),
    picture(HLL, "hll-sizes", hll::draw_sizes),
    picture(HLL, "hll-bias", hll::draw_bias),
    picture(QUEUES, "queues", queues::draw),
    picture(QUEUES, "queues-third", queues::draw_third),
    picture(QUEUES, "queues-events", queues::draw_events),
];

/// Draws the pictures of a command from the files of their results; of all commands, those that have results.
pub fn draw(command: &Command, options: &Options) -> Result<()> {
    let names = names(command);
    let is_wanted =
        |picture: &&Picture| names.contains(&picture.name) || matches!(command, Command::All);
    for picture in PICTURES.iter().filter(is_wanted) {
        let folder = options.out.as_deref().unwrap_or(Path::new(picture.folder));
        let path = folder.join(format!("{}.jsonl", picture.results));
        if matches!(command, Command::All) && !path.exists() {
            continue;
        }
        (picture.draw)(&sheet::read(&path)?, &folder.join(format!("{}.svg", picture.name)))?;
    }
    if matches!(command, Command::Sal(_) | Command::All) {
        sal::draw(options)?;
    }
    Ok(())
}

/// Returns the names of the pictures of one command.
fn names(command: &Command) -> &'static [&'static str] {
    match command {
        Command::Fig3(_) => &["fig3"],
        Command::Fig6(_) => &["fig6"],
        Command::Fig7(_) => &["fig7", "table3"],
        Command::Fig8(_) => &["fig8"],
        Command::Fig9(_) => &["fig9"],
        Command::Fig10(_) => &["fig10"],
        Command::Fig11(_) => &["fig11"],
        Command::Fig12(_) => &["fig12", "table5"],
        Command::Table1(_) => &["table1"],
        Command::Table4(_) => &["table4"],
        Command::Updates(_) => &["updates"],
        Command::VoldemortLookups(_) => &["voldemort-lookups"],
        Command::VoldemortBuilds(_) => &["voldemort-builds"],
        Command::CascadeFig3(_) => &["cascade-fig3"],
        Command::CascadeQuotient(_) => &["cascade-quotient"],
        Command::CascadeLookups(_) => &["cascade-lookups"],
        Command::CascadeTombstones(_) => &["cascade-tombstones"],
        Command::SalReplication(_) => &["sal-replication"],
        Command::HllIntersections(_) => {
            &["hll-intersections", "hll-envelopes", "hll-ratios", "hll-cut-offs", "hll-histograms"]
        }
        Command::HllSizes(_) => &["hll-sizes", "hll-bias"],
        Command::Queues(_) => &["queues", "queues-third", "queues-events"],
        Command::All | Command::Sal(_) | Command::Urls(_) => &[],
    }
}
