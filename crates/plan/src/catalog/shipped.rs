//! Catalogues that travel with the program, one a provider. They are never edited in place: overlays are laid over them.

use super::layers::Source;
use crate::figure::Layer;

/// Clients first: services name none, but what was observed through them is of services.
pub const SHIPPED: [Source; 4] = [
    shipped("catalog/clients.toml", include_str!("../../../../catalog/clients.toml")),
    shipped("catalog/aws.toml", include_str!("../../../../catalog/aws.toml")),
    shipped("catalog/azure.toml", include_str!("../../../../catalog/azure.toml")),
    shipped("catalog/gcp.toml", include_str!("../../../../catalog/gcp.toml")),
];

const fn shipped(place: &'static str, text: &'static str) -> Source<'static> {
    Source { layer: Layer::Shipped, place, text }
}
