//! What a request is answered with when it cannot be done.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::failure::{Exit, Failure};

/// A status with what happened and what to do.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    what: String,
    advice: Option<String>,
}

impl Refusal {
    pub fn new(status: StatusCode, what: impl Into<String>) -> Self {
        Self {
            status,
            what: what.into(),
            advice: None,
        }
    }

    /// The request itself is wrong.
    pub fn bad(what: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, what)
    }

    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, what)
    }

    /// Right, but not now.
    pub fn conflict(what: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, what)
    }

    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
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
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = Json(json!({ "error": self.what, "advice": self.advice }));
        (self.status, body).into_response()
    }
}
