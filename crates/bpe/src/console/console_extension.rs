//! Extension point of the console: another command adds pages that work on one server, below a separate URL path.

use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::answer::Answer;
use super::error::Refusal;
use super::watched::Watched;

/// The experience: generates load on one server, and may turn its switch.
pub trait ConsoleExtension: Send + Sync {
    /// The server that it works on.
    fn server(&self) -> &Arc<Watched>;

    /// Whether it currently turns the server's switch, which excludes other changes.
    fn is_comparing(&self) -> bool;

    /// Asks a running experience to end soon and to restore the switch.
    fn stop(&self);

    /// Terminates the programs it started and removes its data. The console exits right afterwards.
    fn end(&self);

    /// Handlers below `/api/experience`. Requests have passed the guard.
    fn routes(self: Arc<Self>) -> Router;
}

/// Handlers for the same paths without a guest.
pub fn none() -> Router {
    Router::new()
        .route("/", get(nothing))
        .route("/run", post(missing))
        .route("/stop", post(missing))
        .route("/results/{id}", get(missing))
}

async fn nothing() -> Json<Value> {
    Json(json!({ "available": false, "server": null, "tests": [], "run": null, "results": [] }))
}

async fn missing() -> Answer<()> {
    Err(
        Refusal::not_found("this console has no experience page").advise(
            "make demo UI=1 opens one on a server of its own; bpe-lab console on the first of your own",
        ),
    )
}
