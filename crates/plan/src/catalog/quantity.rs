//! What figures can be of, and their units.
//!
//! Invariant: within the crate there is one unit for each quantity: GiB and hours for what is held, MB/s of 10^6 bytes for
//! speed, requests one by one.

use serde::Serialize;

/// Hours of a month, as providers count them.
pub const MONTH_HOURS: f64 = 730.0;
pub const GIB: f64 = 1_073_741_824.0;
/// MB of a MiB.
const MIB_MB: f64 = 1.048_576;

/// What is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Charge {
    /// A GiB for an hour.
    Capacity,
    /// A request that reads.
    Read,
    /// A request that writes.
    Write,
    /// A request that lists.
    List,
    /// A GiB read, also called retrieval.
    ReadBytes,
    /// A GiB written.
    WriteBytes,
    /// A GiB to another region.
    Egress,
    /// A GiB to another zone of the region.
    CrossZone,
    /// One MB/s for an hour, where speed is bought.
    Throughput,
    /// One operation a second for an hour, where they are bought.
    Iops,
    /// An hour of a node.
    Hour,
}

pub const CHARGES: [(&str, Charge); 11] = [
    ("capacity", Charge::Capacity),
    ("read", Charge::Read),
    ("write", Charge::Write),
    ("list", Charge::List),
    ("read-bytes", Charge::ReadBytes),
    ("write-bytes", Charge::WriteBytes),
    ("egress", Charge::Egress),
    ("cross-zone", Charge::CrossZone),
    ("throughput", Charge::Throughput),
    ("iops", Charge::Iops),
    ("hour", Charge::Hour),
];

impl Charge {
    pub fn name(self) -> &'static str {
        CHARGES.iter().find(|(_, charge)| *charge == self).map_or("", |(name, _)| name)
    }

    /// Units and what a price in them is multiplied by.
    pub fn units(self) -> &'static [(&'static str, f64)] {
        match self {
            Charge::Capacity => {
                &[("GiB-month", 1.0 / MONTH_HOURS), ("GiB-hour", 1.0), ("TiB-month", 1.0 / MONTH_HOURS / 1024.0)]
            }
            Charge::Read | Charge::Write | Charge::List => &[("1", 1.0), ("1k", 1e-3), ("10k", 1e-4), ("1M", 1e-6)],
            Charge::ReadBytes | Charge::WriteBytes | Charge::Egress | Charge::CrossZone => {
                &[("GiB", 1.0), ("TiB", 1.0 / 1024.0)]
            }
            Charge::Throughput => &[("MB/s-month", 1.0 / MONTH_HOURS), ("MiB/s-month", 1.0 / MIB_MB / MONTH_HOURS)],
            Charge::Iops => &[("IOPS-month", 1.0 / MONTH_HOURS)],
            Charge::Hour => &[("hour", 1.0)],
        }
    }
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Of {
    /// MB/s read.
    Bandwidth,
    /// MB/s written.
    WriteBandwidth,
    /// Operations a second.
    Requests,
    /// Files opened a second.
    Metadata,
    /// Milliseconds until the first byte of an answer.
    FirstByte,
    /// MB/s that a node takes from the network.
    Network,
    /// MB/s of a second network, for those who speak RDMA.
    Fabric,
    /// MB/s and operations a second between a node and disks on the network.
    DiskBandwidth,
    DiskRequests,
    /// GiB on a node's own disks, their MB/s and operations a second.
    LocalGib,
    LocalBandwidth,
    LocalRequests,
    /// Connections of a mount; requests that it keeps in flight; requests in sequence until a file begins.
    Connections,
    InFlight,
    RoundTrips,
    /// The largest request that it makes, in MB.
    RequestSize,
    /// Minutes after which a copy in another region has what changed.
    ReplicaLag,
}

pub const LIMITS: [(&str, Of); 17] = [
    ("bandwidth", Of::Bandwidth),
    ("write-bandwidth", Of::WriteBandwidth),
    ("requests", Of::Requests),
    ("metadata", Of::Metadata),
    ("first-byte", Of::FirstByte),
    ("network", Of::Network),
    ("fabric", Of::Fabric),
    ("disk-bandwidth", Of::DiskBandwidth),
    ("disk-requests", Of::DiskRequests),
    ("local-size", Of::LocalGib),
    ("local-bandwidth", Of::LocalBandwidth),
    ("local-requests", Of::LocalRequests),
    ("connections", Of::Connections),
    ("in-flight", Of::InFlight),
    ("round-trips", Of::RoundTrips),
    ("request-size", Of::RequestSize),
    ("replica-lag", Of::ReplicaLag),
];

impl Of {
    pub fn name(self) -> &'static str {
        LIMITS.iter().find(|(_, of)| *of == self).map_or("", |(name, _)| name)
    }

    pub fn units(self) -> &'static [(&'static str, f64)] {
        match self {
            Of::Bandwidth | Of::WriteBandwidth | Of::Network | Of::Fabric | Of::DiskBandwidth | Of::LocalBandwidth => {
                &[
                    ("MB/s", 1.0),
                    ("KB/s", 1e-3),
                    ("GB/s", 1e3),
                    ("TB/s", 1e6),
                    ("MiB/s", MIB_MB),
                    ("GiB/s", MIB_MB * 1024.0),
                    ("Gbit/s", 125.0),
                    ("Tbit/s", 125e3),
                ]
            }
            Of::Requests | Of::Metadata | Of::DiskRequests | Of::LocalRequests => &[("1/s", 1.0)],
            Of::FirstByte => &[("ms", 1.0), ("us", 1e-3)],
            Of::LocalGib => &[("GiB", 1.0), ("GB", 1e9 / GIB), ("TB", 1e12 / GIB), ("TiB", 1024.0)],
            Of::Connections | Of::InFlight | Of::RoundTrips => &[("count", 1.0)],
            Of::RequestSize => &[("MB", 1.0), ("MiB", MIB_MB)],
            Of::ReplicaLag => &[("min", 1.0), ("h", 60.0)],
        }
    }
}

/// Of what there is one limit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// An account, a volume, a file system: what is rented as one.
    Service,
    /// A node that reads.
    Node,
    /// A file.
    File,
    /// A connection, or a request.
    Connection,
}

impl Scope {
    pub fn name(self) -> &'static str {
        SCOPES.iter().find(|(_, scope)| *scope == self).map_or("", |(name, _)| name)
    }
}

pub const SCOPES: [(&str, Scope); 4] =
    [("service", Scope::Service), ("node", Scope::Node), ("file", Scope::File), ("connection", Scope::Connection)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_mean_what_providers_mean_by_them() {
        let factor = |units: &[(&str, f64)], unit: &str| units.iter().find(|(name, _)| *name == unit).unwrap().1;
        assert_eq!(50.0 * factor(Of::Bandwidth.units(), "Gbit/s"), 6250.0);
        assert_eq!(factor(Of::Bandwidth.units(), "GiB/s"), 1073.741824);
        assert_eq!(0.73 * factor(Charge::Capacity.units(), "GiB-month"), 0.001);
        assert_eq!(5.0 * factor(Charge::Read.units(), "10k"), 0.0005);
        assert_eq!((Charge::ReadBytes.name(), Of::LocalGib.name()), ("read-bytes", "local-size"));
    }
}
