//! Defaults of a medium that is named without options.

use std::time::Duration;
use varve::env::{Env, Random};
use varve::media::{IoContext, ZoneId};
use varve::options::{Favour, Profile};
use varve::stack::StackBuilder;
use varve::{Options, Spec, TreeKind, Varve};

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

fn open(env: &Env, text: &str) -> varve::Result<Varve> {
    Varve::builder().env(env).open_spec(&spec(text))
}

fn key(number: u64) -> String {
    format!("key{number:09}")
}

/// A table that took a zone of 1,077 MiB left a drive of ten zones full after a few flushes.
#[test]
fn a_zns_drive_of_few_zones_takes_several_memtables_and_is_found_again() {
    let env = Env::sim(1);
    let text = "zns:10GiB?backing=compressed";
    let db = open(&env, text).unwrap();
    let mut random = Random::named(1, "values");
    let mut value = [0; 1024];
    let count = 300_000;
    for number in 0..count {
        random.fill_bytes(&mut value[..64]);
        db.put(key(number), value).unwrap_or_else(|error| panic!("put {number}: {error}"));
    }
    let image = db.close_into_image().unwrap();
    let begin = |text: &str| Varve::builder().env(&env).begin_with(&image).open_spec(&spec(text));
    let db = begin(text).unwrap();
    assert!(db.get(key(count - 1)).unwrap().is_some() && db.get(key(count)).unwrap().is_none());
    assert!(begin(&format!("{text},store=hybrid")).is_ok());
    assert!(begin(&format!("{text},store=band")).is_err(), "tables share zones");
}

/// A medium that another store formatted opens with that store without its name.
#[test]
fn a_store_that_is_there_goes_before_the_default() {
    let env = Env::sim(1);
    let text = "zns:21GiB?backing=compressed";
    let db = open(&env, &format!("{text},store=band")).unwrap();
    db.put("key", "value").unwrap();
    let image = db.close_into_image().unwrap();
    let db = Varve::builder().env(&env).begin_with(&image).open_spec(&spec(text)).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Host-aware disks, and those that are under layers, get the store by their zones.
#[test]
fn disks_written_anywhere_get_bands_where_they_have_many_zones() {
    let env = Env::sim(1);
    let builder = StackBuilder::new(&env);
    for (text, store) in [
        ("hasmr:8TB", "band"),
        ("hasmr:8TB?control=idler", "band"),
        ("hasmr:8TB?relocate=on", "band"),
        ("smr:20GiB?host-aware,conventional=0", "band"),
        ("smr:20GiB?host-aware", "band"),
        // No zones are visible.
        ("hasmr:8TB?device-managed", "extent"),
        ("hasmr:8TB?buffer=(ssd:1GB)", "extent"),
        // Too few zones for a table in each.
        ("hasmr:10GiB?cache=64MiB,extents=100", "extent"),
        ("disk:1TB", "extent"),
    ] {
        assert_eq!(builder.store_of(&spec(text)).unwrap(), Some((store, false)), "{text}");
    }
    assert_eq!(builder.store_of(&spec("hasmr:8TB?store=extent")).unwrap(), Some(("extent", true)));
}

const HOST_AWARE: &str = "hasmr:160MiB?zone=512KiB,cache=2MiB,extents=100,backing=compressed";

/// Puts, overwrites and deletes, with a number of seconds between some, in which a disk would clean; counts zones out of order and
/// writes that the media cache took.
fn non_sequential(db: &Varve, env: &Env, tree: TreeKind) -> (usize, u64) {
    let mut random = Random::named(1, "values");
    let mut value = [0; 1024];
    for step in 0..60_000u64 {
        random.fill_bytes(&mut value);
        let number = random.below(20_000);
        let outcome = match step % 4 {
            0 => db.delete(key(number)),
            _ => db.put(key(number), value),
        };
        outcome.unwrap_or_else(|error| panic!("{tree:?}, step {step}: {error}"));
        if step % 20_000 == 0 {
            env.sleep(Duration::from_secs(3));
        }
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let device = db.stack().devices()[0].device().clone();
    let count = device.block.capabilities().zones.as_ref().unwrap().zone_count;
    let zones = device.zones.as_ref().unwrap().report(ZoneId(0), count, &IoContext::default()).unwrap();
    (zones.iter().filter(|zone| zone.non_sequential).count(), device.block.counters().cleaning.cached_writes)
}

/// Its media cache is never used and nothing has to be cleaned, in any tree of tables and after it is opened again; with extents it is.
#[test]
fn a_host_aware_disk_stays_in_order_by_default() {
    for tree in TreeKind::OF_TABLES {
        let env = Env::sim(1);
        let of_client = env.clone();
        let client = env.spawn("client", move || {
            let env = of_client;
            let options = Options { tree: Some(tree), ..Options::default() };
            let builder = || Varve::builder().env(&env).options(options.clone());
            let db = builder().open_spec(&spec(HOST_AWARE)).unwrap();
            assert_eq!(non_sequential(&db, &env, tree), (0, 0), "{tree:?}");
            let image = db.close_into_image().unwrap();
            let db = builder().begin_with(&image).open_spec(&spec(HOST_AWARE)).unwrap();
            assert_eq!(non_sequential(&db, &env, tree), (0, 0), "{tree:?}, opened again");
            assert!(db.check().unwrap().is_empty());
            let db = builder().open_spec(&spec(&format!("{HOST_AWARE},store=extent"))).unwrap();
            assert!(non_sequential(&db, &env, tree).1 > 0, "{tree:?}: the test sees the media cache");
        });
        client.join().unwrap();
    }
}

#[test]
fn extents_on_a_host_aware_disk_stay_extents() {
    let env = Env::sim(1);
    let named = |store: &str| spec(&format!("{HOST_AWARE},store={store}"));
    for (store, other) in [("extent", "band"), ("band", "extent")] {
        let db = Varve::builder().env(&env).open_spec(&named(store)).unwrap();
        db.put("key", "value").unwrap();
        let image = db.close_into_image().unwrap();
        let begin = |spec: &Spec| Varve::builder().env(&env).begin_with(&image).open_spec(spec);
        let db = begin(&spec(HOST_AWARE)).unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]), "{store}");
        drop(db);
        let error = begin(&named(other)).err().unwrap().to_string();
        assert!(error.contains(&format!("'{store}'")), "{error}");
    }
}

fn tree_of(db: &Varve) -> (String, String) {
    let choice = db.choices().iter().find(|choice| choice.name == "tree").expect("the tree was unset");
    (choice.value.clone(), choice.reason.to_owned())
}

/// The tree of a new database follows from the medium, and that of one that is there is taken as it is.
#[test]
fn the_tree_follows_from_the_medium_and_stays() {
    let env = Env::sim(1);
    for (text, favour, tree) in [
        ("smr:20GB", Favour::Writes, "two_level"),
        ("smr:20GB", Favour::Scans, "leveled"),
        ("hasmr:1TB", Favour::Balanced, "leveled"),
        ("disk:20GB", Favour::Balanced, "leveled"),
        ("disk:20GB", Favour::Writes, "two_level"),
        ("imr:20GB", Favour::Balanced, "leveled"),
        ("zns:50GB", Favour::Balanced, "leveled"),
        ("zns:20GB+smr:200GB", Favour::Writes, "leveled"),
        ("ssd:20GB", Favour::Balanced, "leveled"),
    ] {
        let spec = spec(&format!("{text}?backing=compressed").replace("+", "?backing=compressed+"));
        let options = || Options { favour, ..Options::default() };
        let db = Varve::builder().env(&env).options(options()).open_spec(&spec).unwrap();
        assert_eq!(tree_of(&db).0, tree, "{text} {favour:?}");
        db.put("key", "value").unwrap();
        if text.starts_with("imr") {
            continue; // No image is taken of overlapping tracks.
        }
        let image = db.close_into_image().unwrap();
        for favour in [Favour::Writes, Favour::Balanced, Favour::Scans] {
            let options = Options { favour, ..Options::default() };
            let builder = || Varve::builder().env(&env).options(options.clone()).begin_with(&image);
            let db = builder().open_spec(&spec).unwrap();
            assert_eq!(tree_of(&db), (tree.to_owned(), "the tree that is on the medium".to_owned()), "{text}");
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
            drop(db);
            let reader = builder().read_only(true).open_spec(&spec).unwrap();
            assert_eq!(tree_of(&reader).0, tree, "{text}");
        }
    }
}

/// What was set by hand stays, and what has no effect is named.
#[test]
fn options_given_by_hand_win() {
    let env = Env::sim(1);
    let options = Options { tree: Some(TreeKind::Leveled), overlap_depth_max: Some(7), ..Options::default() };
    let db = Varve::builder().env(&env).options(options).open_spec(&spec("smr:20GB?backing=compressed")).unwrap();
    assert!(
        db.choices().iter().all(|choice| !["tree", "overlap_depth_max"].contains(&choice.name)),
        "{:?}",
        db.choices()
    );
    let without: Vec<&str> = db.options_without_effect().iter().map(|option| option.name).collect();
    assert_eq!(without, ["overlap_depth_max"]);
}

fn layout(db: &Varve, name: &str) -> String {
    let layout = db.stack().files().layout();
    layout.into_iter().find(|(what, _)| *what == name).expect("a line of the layout").1
}

/// `profile=paper` gives stores the policies of the papers where the spec leaves them open.
#[test]
fn the_papers_configuration_reaches_stores() {
    let env = Env::sim(1);
    for (profile, allocation, caching) in
        [(Profile::Medium, "cost-aware", "records"), (Profile::Paper, "compaction-aware", "fifo")]
    {
        let options = || Options { profile, ..Options::default() };
        let open = |text: &str| Varve::builder().env(&env).options(options()).open_spec(&spec(text)).unwrap();
        let imr = open("imr:20GB?backing=compressed");
        let shown = layout(&imr, "allocation");
        assert!(shown.contains(allocation), "{shown}");
        let hybrid = open("zns:20GB?backing=compressed+smr:200GB?backing=compressed");
        let shown = layout(&hybrid, "caching");
        assert!(shown.contains(caching), "{shown}");
    }
}
