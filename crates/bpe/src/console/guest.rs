//! What another command may add to the console: pages that work on one of its servers, under an address of their own.

use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::answer::Answer;
use super::error::Refusal;
use super::watched::Watched;

/// The experience: a load on one server, whose switch it may turn itself.
pub trait Guest: Send + Sync {
    /// The server it works on.
    fn server(&self) -> &Arc<Watched>;

    /// Whether it is turning the server's switch, which nobody else may do meanwhile.
    fn is_comparing(&self) -> bool;

    /// Has what runs end soon; the switch is put back.
    fn stop(&self);

    /// Ends the programs it has started and removes what it has made. The console ends right after.
    fn end(&self);

    /// What it answers below `/api/experience`. Requests have passed the guard.
    fn routes(self: Arc<Self>) -> Router;
}

/// The same addresses where there is no guest.
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
