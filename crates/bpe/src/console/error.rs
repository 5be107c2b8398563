//! Error answers to requests.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use crate::support::failure::{Exit, Failure};

/// A status code with the error and advice.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    what: String,
    advice: Option<String>,
    /// Additional members of the answer for the page.
    more: Map<String, Value>,
}

impl Refusal {
    pub fn new(status: StatusCode, what: impl Into<String>) -> Self {
        Self {
            status,
            what: what.into(),
            advice: None,
            more: Map::new(),
        }
    }

    /// The request is invalid.
    pub fn bad(what: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, what)
    }

    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, what)
    }

    /// The request is valid, but not now.
    pub fn conflict(what: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, what)
    }

    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl Refusal {
    /// Adds the members of an object to the answer.
    #[must_use]
    pub fn with(mut self, more: Value) -> Self {
        if let Value::Object(more) = more {
            self.more = more;
        }
        self
    }
}

impl Refusal {
    /// The error message.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self {
            status: match failure.exit {
                Exit::Connect => StatusCode::BAD_GATEWAY,
                Exit::Usage => StatusCode::BAD_REQUEST,
                _ => StatusCode::UNPROCESSABLE_ENTITY,
            },
            what: failure.what,
            advice: failure.advice,
            more: Map::new(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut body = self.more;
        body.insert("error".to_owned(), self.what.into());
        body.insert("advice".to_owned(), self.advice.into());
        (self.status, Json(body)).into_response()
    }
}
