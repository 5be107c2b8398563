//! One line of the doctor: topic, verdict and advice.

use interface::untrusted::one_line;
use serde_json::{Value, json};

use crate::support::terminal::Paint;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Ok,
    Warn,
    Fail,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Finding {
    pub level: Level,
    pub topic: &'static str,
    pub text: String,
    pub advice: Option<String>,
}

impl Finding {
    fn new(level: Level, topic: &'static str, text: impl Into<String>) -> Self {
        Self {
            level,
            topic,
            text: text.into(),
            advice: None,
        }
    }

    pub fn ok(topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(Level::Ok, topic, text)
    }

    pub fn warn(topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(Level::Warn, topic, text)
    }

    pub fn fail(topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(Level::Fail, topic, text)
    }

    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    pub fn line(&self, paint: Paint) -> String {
        let name = format!("{:<5}", self.level.name());
        let name = match self.level {
            Level::Ok => paint.green(&name),
            Level::Warn => paint.yellow(&name),
            Level::Fail => paint.red(&name),
        };
        let mut line = format!("{name}{:<13}{}", self.topic, one_line(&self.text));
        if let Some(advice) = &self.advice {
            let indent = format!("\n{:18}", "");
            line.push_str(&indent);
            line.push_str("-> ");
            line.push_str(&advice.replace('\n', &format!("{indent}   ")));
        }
        line
    }

    pub fn json(&self) -> Value {
        json!({
            "level": self.level.name(),
            "topic": self.topic,
            "text": self.text,
            "advice": self.advice,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_carry_level_topic_and_advice() {
        let finding = Finding::fail("path", "is not there").advise("make it\nthen retry");
        assert_eq!(
            finding.line(Paint::stdout()),
            "fail path         is not there\n                  -> make it\n                     then retry"
        );
        assert_eq!(finding.json()["level"], "fail");
        assert!(Level::Ok < Level::Warn && Level::Warn < Level::Fail);
    }
}
