//! Generates the last row of Grafana's dashboard: every figure that no panel above it shows.

use interface::Status;
use interface::status::{Kind, Unit};
use serde_json::{Value, json};

const ROW: &str = "Everything else";
/// Prefix of the metric names in the dashboard's panels. The exporter adds it to the names of the status variables.
const METRIC: &str = "mysql_global_status_bpe_";
const WIDTH: usize = 8;
const HEIGHT: usize = 8;

/// Returns the dashboard with that row regenerated; `None` if the text has no dashboard layout.
pub fn with_the_rest(dashboard: &str) -> Option<String> {
    let end = dashboard.rfind("\n  ]\n}")?;
    let row = format!("\"title\": \"{ROW}\"");
    let above = match dashboard.find(&row) {
        Some(at) => &dashboard[..dashboard[..at].rfind(",\n    {\n")?],
        None => &dashboard[..end],
    };
    let panels: Value = serde_json::from_str(&format!("{above}\n  ]\n}}")).ok()?;
    let panels = panels["panels"].as_array()?;
    let number = |panel: &Value, name: &str| panel["gridPos"][name].as_u64().unwrap_or(0);
    let below = |panel: &Value| number(panel, "y") + number(panel, "h");
    let top = panels.iter().map(below).max()? as usize;
    let id = panels
        .iter()
        .filter_map(|panel| panel["id"].as_u64())
        .max()? as usize
        + 1;
    let inside: Vec<Value> = groups(above)
        .into_iter()
        .enumerate()
        .map(|(index, group)| {
            let (x, y) = (index % 3 * WIDTH, top + 1 + index / 3 * HEIGHT);
            panel(id + 1 + index, x, y, &group)
        })
        .collect();
    let row = json!({
        "id": id,
        "type": "row",
        "title": ROW,
        "collapsed": true,
        "gridPos": { "x": 0, "y": top, "w": 24, "h": 1 },
        "panels": inside,
    });
    let text = serde_json::to_string_pretty(&row).ok()?;
    let text = text.replace('\n', "\n    ");
    Some(format!("{above},\n    {text}{}", &dashboard[end..]))
}

/// Groups the numbers that the text does not name, by kind and unit.
fn groups(above: &str) -> Vec<Vec<Status>> {
    let shown = |one: &Status| {
        let mut words = above.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.any(|word| word.strip_prefix(METRIC) == Some(one.name()))
    };
    let mut groups: Vec<Vec<Status>> = Vec::new();
    let rest = Status::ALL.iter().copied();
    for one in rest.filter(|one| one.kind() != Kind::Text && !shown(one)) {
        let of = |group: &&mut Vec<Status>| {
            (group[0].kind(), group[0].unit()) == (one.kind(), one.unit())
        };
        match groups.iter_mut().find(of) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

fn panel(id: usize, x: usize, y: usize, group: &[Status]) -> Value {
    let (kind, unit) = (group[0].kind(), group[0].unit());
    let per_second = if kind == Kind::Counter {
        ", per second"
    } else {
        ""
    };
    let meanings: Vec<String> = group
        .iter()
        .map(|one| format!("{}: {}.", one.name(), one.meaning()))
        .collect();
    let targets: Vec<Value> = group
        .iter()
        .zip('A'..='Z')
        .map(|(one, reference)| {
            let metric = format!("{METRIC}{}{{instance=\"$instance\"}}", one.name());
            let expression = match kind {
                Kind::Counter => format!("rate({metric}[$__rate_interval])"),
                Kind::Gauge | Kind::Text => metric,
            };
            json!({
                "refId": reference.to_string(),
                "datasource": { "type": "prometheus", "uid": "${datasource}" },
                "expr": expression,
                "legendFormat": one.name(),
                "range": true,
                "instant": false,
                "editorMode": "code",
            })
        })
        .collect();
    json!({
        "id": id,
        "type": "timeseries",
        "title": format!("{}{per_second}", in_words(unit)),
        "description": meanings.join(" "),
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "gridPos": { "x": x, "y": y, "w": WIDTH, "h": HEIGHT },
        "fieldConfig": {
            "defaults": {
                "unit": of_grafana(kind, unit),
                "custom": {
                    "drawStyle": "line",
                    "lineWidth": 1,
                    "fillOpacity": 10,
                    "showPoints": "never",
                    "spanNulls": false,
                    "stacking": { "mode": "none", "group": "A" },
                },
                "min": 0,
            },
            "overrides": [],
        },
        "options": {
            "legend": { "displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": [] },
            "tooltip": { "mode": "multi", "sort": "none" },
        },
        "targets": targets,
    })
}

fn in_words(unit: Unit) -> &'static str {
    match unit {
        Unit::Number | Unit::Word => "Numbers",
        Unit::Reads => "Reads",
        Unit::Pages => "Pages",
        Unit::Bytes => "Bytes",
        Unit::Microseconds => "Microseconds",
        Unit::Seconds => "Seconds",
        Unit::Percent => "Percent",
    }
}

/// Grafana's name of a unit. For a counter: the unit of its growth per second.
pub fn of_grafana(kind: Kind, unit: Unit) -> &'static str {
    match (kind, unit) {
        (Kind::Counter, Unit::Reads) => "reqps",
        (Kind::Counter, Unit::Bytes) => "Bps",
        (Kind::Counter, _) => "cps",
        (_, Unit::Bytes) => "bytes",
        (_, Unit::Microseconds) => "µs",
        (_, Unit::Seconds) => "s",
        (_, Unit::Percent) => "percent",
        (_, _) => "short",
    }
}
