use super::*;

fn parsed(text: &str) -> Rules {
    Rules::parse(text, false).unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn refused(text: &str) -> String {
    Rules::parse(text, false).expect_err(text)
}

fn table<'a>(schema: &'a str, table: &'a str) -> Named<'a> {
    Named::Table {
        schema,
        table,
        partition: None,
    }
}

fn partition<'a>(schema: &'a str, table: &'a str, partition: &'a str) -> Named<'a> {
    Named::Table {
        schema,
        table,
        partition: Some(partition),
    }
}

#[test]
fn the_first_rule_that_fits_counts() {
    let rules = parsed("exclude shop.log_%; limit 20% reports.*,  prefer shop.orders");
    let of = |schema, name| rules.action(&table(schema, name));
    assert_eq!(of("shop", "log_2026"), Some(Action::Exclude));
    assert_eq!(of("shop", "log_"), Some(Action::Exclude));
    assert_eq!(of("shop", "log"), None, "an underscore is itself");
    assert_eq!(of("shop", "logs2026"), None);
    assert_eq!(of("reports", "monthly"), Some(Action::Limit(20)));
    assert_eq!(of("shop", "orders"), Some(Action::Prefer));
    assert_eq!(of("shop", "Orders"), None);
    assert_eq!(rules.action(&Named::System), None);
    let rules = parsed("normal shop.orders, exclude shop.*");
    assert_eq!(rules.action(&table("shop", "orders")), Some(Action::Normal));
    assert_eq!(rules.action(&table("shop", "items")), Some(Action::Exclude));
}

#[test]
fn with_an_include_only_what_is_named_is_cached() {
    let rules = parsed("include shop.*, prefer crm.people");
    assert_eq!(rules.of(&table("shop", "a")), Said::Rule(0));
    assert_eq!(rules.of(&table("crm", "people")), Said::Rule(1));
    assert_eq!(rules.of(&table("crm", "a")), Said::NotIncluded);
    assert_eq!(rules.action(&Named::System), Some(Action::Exclude));
    let rules = parsed("include *.*, include #system");
    assert_eq!(rules.of(&Named::System), Said::Rule(1));
}

#[test]
fn partitions_have_rules_of_their_own() {
    let rules = parsed(
        "prefer shop.orders#p#p2026, limit 5% shop.orders#P#P20??#sp#s1, exclude shop.orders",
    );
    assert_eq!(
        rules.action(&partition("shop", "orders", "P2026")),
        Some(Action::Prefer)
    );
    assert_eq!(
        rules.action(&partition("shop", "orders", "p2025:S1")),
        Some(Action::Limit(5))
    );
    assert_eq!(
        rules.action(&partition("shop", "orders", "p2025:s2")),
        Some(Action::Exclude)
    );
    assert_eq!(
        rules.action(&partition("shop", "orders", "p2026:s2")),
        Some(Action::Prefer)
    );
    assert_eq!(
        rules.action(&table("shop", "orders")),
        Some(Action::Exclude)
    );
}

#[test]
fn odd_names_stand_in_backquotes() {
    let rules = parsed("exclude `my db`.`a,b;``*`, prefer limit.exclude, exclude `größe`.日本*");
    assert_eq!(
        rules.action(&table("my db", "a,b;`*")),
        Some(Action::Exclude)
    );
    assert_eq!(rules.action(&table("my db", "a,b;`x")), None);
    assert_eq!(
        rules.action(&table("limit", "exclude")),
        Some(Action::Prefer)
    );
    assert_eq!(
        rules.action(&table("größe", "日本語")),
        Some(Action::Exclude)
    );
    assert_eq!(parsed(&rules.to_string()), rules);
    assert_eq!(parsed("exclude `a b`*.`c`").to_string(), "exclude `a b`*.c");
}

#[test]
fn case_is_the_servers() {
    let rules = Rules::parse("exclude Shop.LOG_*", true).unwrap();
    assert_eq!(rules.action(&table("shop", "log_1")), Some(Action::Exclude));
    assert_eq!(rules.action(&table("SHOP", "Log_1")), Some(Action::Exclude));
}

#[test]
fn nothing_and_empty_rules_are_no_rules() {
    for text in ["", "  ", ",;,"] {
        assert!(parsed(text).is_empty(), "{text:?}");
    }
    assert_eq!(parsed(",exclude a.b;;").iter().count(), 1);
}

#[test]
fn what_is_wrong_is_said() {
    for (text, said) in [
        (
            "exlude shop.log",
            "rule 1 (exlude shop.log): it begins with \"exlude\"; a rule begins with include, exclude",
        ),
        ("exclude a.b, shop.log", "rule 2 (shop.log): it begins with"),
        ("exclude", "it names no table"),
        (
            "exclude orders",
            "after orders a dot is missing: write schema.table, orders.* or *.orders",
        ),
        ("exclude a.b c.d", "\" c.d\" after the table is too much"),
        ("exclude a.", "the name of the table is missing"),
        ("exclude .b", "the name of the schema is missing"),
        ("exclude a.'b'", "cannot begin with '\\''"),
        ("exclude a.b#p#", "the name of the partition is missing"),
        ("exclude a.b#x#c", "is too much"),
        ("exclude `a.b", "a backquote is not closed"),
        ("limit shop.a", "limit 20% reports.*"),
        ("limit 20 shop.a", "limit 20% reports.*"),
        ("limit 0% shop.a", "write exclude instead"),
        ("limit 100% shop.a", "1% to 99%"),
        ("limit 99999999999% shop.a", "1% to 99%"),
        ("exclude a.b\0", "its character 12 is \\u{0}"),
        ("exclude a.`b\ninit_file=/x`", "control characters"),
        ("exclude a.`b\u{2028}`", "line separators"),
        ("exclude a.b,\n exclude c.d", "control characters"),
        (
            "excl\u{202e} a.b",
            "rule 1 (excl\\u{202e} a.b): it begins with",
        ),
        ("exclude a.b, exclude a.b", "rules 1 and 2 are the same"),
        (
            "exclude a.b, prefer a.b",
            "rules 1 and 2 contradict each other: exclude a.b and prefer a.b",
        ),
        (
            "exclude a.*, prefer a.b",
            "rule 2 (prefer a.b) would never count, as rule 1 (exclude a.*) comes before it",
        ),
        (
            "exclude a.%, prefer a.b?c*",
            "rule 2 (prefer a.b?c*) would never count",
        ),
        ("exclude a.b, prefer a.b#p#c", "put rule 2 first"),
        ("exclude #system, include #SYSTEM", "contradict"),
    ] {
        let why = refused(text);
        assert!(why.contains(said), "{text}: {why}");
    }
    let long = format!("exclude a.{}", "x".repeat(65));
    assert!(refused(&long).contains("no name has more than 64"));
    let long = format!("exclude a.b{}", " ".repeat(LONGEST));
    assert!(refused(&long).contains("can have 4000"));
    let many: String = (0..=MOST).map(|n| format!("exclude a.t{n},")).collect();
    assert!(refused(&many).contains("more than 100 rules"));
    let many: String = (0..=MOST_LIMITS)
        .map(|n| format!("limit 5% a.t{n},"))
        .collect();
    assert!(refused(&many).contains("more than 14 limits"));
}

#[test]
fn wildcards_cover_what_they_fit() {
    for (wide, narrow, covers) in [
        ("a.*", "a.b", true),
        ("*.*", "a.b", true),
        ("a.b*", "a.b", true),
        ("a.?", "a.*", false),
        ("a.*x*", "a.*xx", true),
        ("a.*xx*", "a.*x*", false),
        ("a.b", "a.b#p#c", true),
        ("a.b#p#c", "a.b", false),
        ("a.b#p#*", "a.b#p#c#sp#d", true),
    ] {
        let pattern = |text| Pattern::parse(text, false).unwrap();
        assert_eq!(
            pattern(wide).covers(&pattern(narrow)),
            covers,
            "{wide} {narrow}"
        );
    }
}

#[test]
fn one_table_is_changed_and_the_rest_stays() {
    let rules = parsed("exclude shop.log_*, limit 20% reports.*");
    let with =
        |rules: &Rules, schema: &str, name: &str, action| rules.with(schema, name, action).unwrap();
    let excluded = with(&rules, "shop", "orders", Some(Action::Exclude));
    assert_eq!(
        excluded,
        "exclude shop.orders, exclude shop.log_*, limit 20% reports.*"
    );
    let again = parsed(&excluded);
    assert_eq!(
        with(&again, "shop", "orders", Some(Action::Limit(5))),
        "limit 5% shop.orders, exclude shop.log_*, limit 20% reports.*"
    );
    assert_eq!(with(&again, "shop", "orders", None), rules.to_string());
    // An exception, and its removal.
    let except = with(&rules, "shop", "log_1", None);
    assert_eq!(
        except,
        "normal shop.log_1, exclude shop.log_*, limit 20% reports.*"
    );
    assert_eq!(
        with(&parsed(&except), "shop", "log_1", Some(Action::Exclude)),
        rules.to_string()
    );
    let odd = with(&rules, "my db", "a`b", Some(Action::Prefer));
    assert_eq!(
        parsed(&odd).action(&table("my db", "a`b")),
        Some(Action::Prefer)
    );
    // A rule for a partition stays before the rule of its table.
    let parts = parsed("prefer shop.orders#p#p1");
    assert_eq!(
        with(&parts, "shop", "orders", Some(Action::Exclude)),
        "prefer shop.orders#p#p1, exclude shop.orders"
    );
    let only = parsed("include shop.*");
    assert_eq!(
        with(&only, "crm", "a", None),
        "normal crm.a, include shop.*"
    );
    assert_eq!(
        with(&only, "crm", "a", Some(Action::Exclude)),
        "include shop.*"
    );
}
