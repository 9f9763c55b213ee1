//! Compares the tree with an older parser that splits the text, and with generated trees.

use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Specification {
    Specification::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn print(node: &SpecNode) -> String {
    let mut text = String::new();
    node.print(&mut text);
    text
}

/// The devices of a text without quotation marks and brackets. Splits the text anew at each layer.
fn split(text: &str) -> Vec<&str> {
    let layer = |text: &str| {
        let (layer, rest) = text.split_once('@')?;
        is_layer(layer.split(',').next()?).then_some((layer.len(), rest.len()))
    };
    let joins = |layer: &str| {
        let is_cut = |w: &str| w.starts_with("first=") || w.starts_with("zones=");
        let kind = layer.split(',').next();
        kind == Some("stripe") || kind == Some("linear") && !layer.split(',').any(is_cut)
    };
    match layer(text) {
        None => vec![text],
        Some((length, rest)) => {
            let below = &text[text.len() - rest..];
            match joins(&text[..length]) {
                true => below.split(JOINER).flat_map(split).collect(),
                false => split(below),
            }
        }
    }
}

#[test]
fn a_text_means_the_devices_that_splitting_found() {
    for text in [
        "mem,zones=8",
        "po2@mem,zones=8,tags=4",
        "po2@/tmp/a@b.zbd,direct=0",
        "/tmp/a@b%c.zbd",
        "po2@/tmp/a%b",
        "crypt,key-file=/a@b@disk.zbd",
        "stripe@crypt,key-file=k@a%b%po2@c,qd1=1",
        "linear,first=1,zones=2@stripe@a%b",
        "stripe@stripe@a",
        "linear@linear,first=1@a%linear,zones=2@b",
        "disk,file=a@b%c",
        "po2",
        "[a].zbd",
        "a\"b",
    ] {
        let spec = read(text);
        assert_eq!(spec.devices().map(SpecPart::text).collect::<Vec<_>>(), split(text), "{text}");
        assert_eq!(&*spec, text);
    }
}

#[test]
fn brackets_hold_the_devices_of_a_layer_together() {
    let spec = read("stripe@[linear@a%b]%po2@[linear@c%\"d]\"],qd1=1,tags=4");
    assert_eq!(spec.root().below().len(), 2);
    assert_eq!(spec.devices().map(SpecPart::name).collect::<Vec<_>>(), ["a", "b", "c", "d]"]);
    assert_eq!(spec.disk().text(), "\"d]\",qd1=1,tags=4");
    assert_eq!(print(spec.root()), "stripe@[linear@a%b]%[po2@linear@c%\"d]\",qd1=1,tags=4]");
    assert_eq!(spec.root(), read(&print(spec.root())).root());
    for (text, what) in [
        ("stripe@[linear@a%b%c", "a [ without its ]"),
        ("stripe@[a]b%c", "'b%c' follows a bracket"),
        ("stripe@[a].zbd%c", "'.zbd%c' follows a bracket"),
        ("stripe@[linear@a%b],zones=4%c", "zones behind a bracket"),
        ("stripe@[linear@a%b],fault=write/io%c", "fault behind a bracket"),
        ("stripe@[mem,tags=4],tags=5", "tags is given twice"),
        ("stripe@a%[b,c%=d]%e", "the key 'c%' has a '%'"),
        ("stripe@linear@a%b", "a layer of several devices on another"),
        ("stripe@a%po2@linear@b", "a layer of several devices on another"),
    ] {
        let e = Specification::parse(text).expect_err(text);
        assert!(e.to_string().contains(what), "{text}: {e}");
        assert!(e.what_to_try().is_some_and(|hint| !hint.is_empty()), "{text}");
    }
}

#[test]
fn one_meaning_has_one_text() {
    let of = |text: &str| read(text).canonical().to_string();
    for (a, b) in [
        ("mem,zones=8,latency=1000us", "mem,latency=1ms,zones=8"),
        ("mem,zone-size=65536K,queue-depth=4", "mem,queue_depth=4,zone-size=64M"),
        ("mem,qd1=1", "mem,zoned_qd1_writes=1"),
        ("delay,write=2000us,read=1ms@mem", "delay,read=1ms,write=2ms@\"mem\""),
        ("po2@[mem]", "po2@mem"),
        ("\"./a.zbd\",direct=0,io=ring", "./a.zbd,io=ring,direct=0"),
        ("crypt,key-file=\"k\"@[stripe@a%b,qd1=1]", "crypt,key-file=k@stripe@a%[b],qd1=1"),
        ("mem,fault=read/delay=1000us", "mem,fault=read/delay=1ms"),
    ] {
        // Quotation marks make a path of the name of a kind.
        match b.contains("\"mem\"") {
            true => assert_ne!(of(a), of(b)),
            false => assert_eq!(of(a), of(b)),
        }
        assert_eq!(of(&of(b)), of(b), "{b}");
    }
    assert_eq!(of("mem,zones=08,nosuch=1,zones2=x"), "mem,nosuch=1,zones=8,zones2=x");
    assert_eq!(of("mem,qd1=1,zoned_qd1_writes=1"), "mem,qd1=1,zoned_qd1_writes=1");
}

#[test]
fn an_option_of_the_disk_is_added_once() {
    let with = |text: &str| read(text).with("force", "1").unwrap().to_string();
    assert_eq!(with("po2@/dev/sda"), "po2@/dev/sda,force=1");
    assert!(read("/dev/sda,force=0").with("force", "1").is_err());
    assert_eq!(with("stripe@[linear@a%b]"), "stripe@[linear@a%b,force=1]");
}

/// The time to parse a text is proportional to its length, whatever is in it.
#[test]
fn a_hostile_text_costs_no_more_than_its_length() {
    let many = |part: &str| part.repeat((1 << 20) / part.len());
    let options: String = (0..60_000).map(|n| format!(",key{n}=x")).collect();
    let start = std::time::Instant::now();
    for text in [
        many("po2@"),
        many("stripe@"),
        format!("stripe@{}", many("mem%")),
        format!("stripe@{}", many("po2@mem%")),
        format!("stripe@{}", many("[mem]%")),
        format!("stripe@{}", many("[stripe@")),
        many("["),
        many("po2@["),
        many("\""),
        many("\\\""),
        many("@"),
        many("%"),
        many(","),
        many("="),
        many("po2,"),
        many("po2,a=\""),
        format!("mem{options}"),
        format!("stripe@[mem]{options}"),
        format!("po2@{}", many("a@")),
    ] {
        if let Ok(spec) = Specification::parse(&text) {
            assert_eq!(read(&print(spec.root())).root(), spec.root());
        }
    }
    let spent = start.elapsed();
    assert!(spent.as_secs() < 60, "{spent:?} for texts of a megabyte");
}

/// Names that users choose, and names full of special characters.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z./]{1,8}",
        "[a-c,=@%\\[\\]\"\\\\ /.]{1,6}",
        "\\PC{1,4}",
        prop_oneof![Just("mem"), Just("po2"), Just("sim"), Just("stripe")].prop_map(str::to_owned),
    ]
}

fn options() -> impl Strategy<Value = Vec<(String, String)>> {
    let key = prop_oneof!["[a-z-]{1,4}", Just("first".to_owned()), Just("tags".to_owned())];
    prop::collection::vec((key, name()), 0..3).prop_map(|mut all| {
        all.sort();
        all.dedup_by(|a, b| a.0 == b.0);
        all
    })
}

fn part(name: String, is_quoted: bool, options: Vec<(String, String)>) -> SpecPart {
    SpecPart::unwritten(Spec::new(&name, is_quoted, options))
}

/// A tree that a text can have: each layer has something below, and only layers that join have several.
fn node() -> impl Strategy<Value = SpecNode> {
    let device = (name(), any::<bool>(), options()).prop_map(|(name, is_quoted, options)| {
        let is_quoted = is_quoted || is_layer(&name);
        SpecNode::Device(part(name, is_quoted, options))
    });
    device.prop_recursive(4, 16, 3, |inner| {
        let layer = prop::sample::select(vec!["po2", "stripe", "linear", "crypt", "trace"]);
        (layer, options(), prop::collection::vec(inner, 1..4)).prop_map(
            |(layer, options, mut below)| {
                let layer = part(layer.to_owned(), false, options);
                if !layer.joins() {
                    below.truncate(1);
                }
                SpecNode::Layer(layer, below)
            },
        )
    })
}

proptest! {
    #[test]
    fn a_tree_is_read_as_it_was_printed(node in node()) {
        let text = print(&node);
        let again = Specification::parse(&text);
        prop_assert!(again.is_ok_and(|again| *again.root() == node), "{text}");
        // A tree that was written again has the parts that its text has.
        let built = Specification::of(node);
        prop_assert!(format!("{:?}", built.root()) == format!("{:?}", read(&built).root()), "{built}");
        // The canonical form of the canonical form is equal.
        let canonical = read(&text).canonical();
        let again = read(&canonical);
        prop_assert_eq!(&again.canonical(), &canonical);
        prop_assert_eq!(again.root(), canonical.root());
    }

    #[test]
    fn any_text_is_read_printed_and_read_again(
        text in "((po2|stripe|linear|crypt|mem|a\\.zbd|\"|\\[|\\]|,|=|@|%|\\\\| |first=1|k=v|\\PC){0,12})",
    ) {
        if let Ok(spec) = Specification::parse(&text) {
            let printed = print(spec.root());
            let again = read(&printed);
            prop_assert_eq!(again.root(), spec.root(), "{} as {}", text, printed);
            let canonical = spec.canonical();
            let again = read(&canonical);
            prop_assert_eq!(again.root(), canonical.root(), "{}", text);
        }
    }

    #[test]
    fn a_plain_text_means_what_it_meant(
        text in "((po2@|stripe@|linear@|linear,first=1@|crypt,k=v@){0,3}(mem|a/b@c|x\\.zbd|d,k=v)(%(po2@)?(mem|y,j=a@b)){0,3})",
    ) {
        match Specification::parse(&text) {
            Ok(spec) => {
                let devices: Vec<_> = spec.devices().map(SpecPart::text).collect();
                prop_assert_eq!(devices, split(&text), "{}", text);
            }
            Err(e) => {
                let known = ["several devices on another", "is given twice"];
                prop_assert!(known.iter().any(|what| e.what().contains(what)), "{text}: {e}");
            }
        }
    }
}
