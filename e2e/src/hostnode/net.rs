//! Addresses for pods: a /16 of 127.0.0.0/8 for each lab.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;

/// The port whose listener marks a /16 as taken; the kubelet's, which nothing in a pod uses.
const MARK: u16 = 10250;

/// The addresses of one lab.
#[derive(Debug)]
pub(crate) struct Net {
    octet: u8,
    next: AtomicU32,
    /// Held so that no other lab takes the same range.
    _mark: TcpListener,
}

impl Net {
    /// Reserves a range that no other lab of this machine has.
    pub(crate) fn reserve() -> anyhow::Result<Arc<Self>> {
        let (octet, mark) = (16..=254_u8)
            .find_map(|octet| {
                Some((
                    octet,
                    TcpListener::bind((Ipv4Addr::new(127, octet, 0, 1), MARK)).ok()?,
                ))
            })
            .context("no address range of 127.0.0.0/8 is free: stop other labs")?;
        Ok(Arc::new(Self {
            octet,
            next: AtomicU32::new(0),
            _mark: mark,
        }))
    }

    /// An address that was not handed out for the last 60,000 calls.
    pub(crate) fn address(&self) -> Ipv4Addr {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        // Third octet 1..=254, fourth 1..=250: none that looks like a network or a broadcast address.
        let third = u8::try_from((n / 250) % 254 + 1).unwrap_or(1);
        let fourth = u8::try_from(n % 250 + 1).unwrap_or(1);
        Ipv4Addr::new(127, self.octet, third, fourth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_labs_share_no_address() {
        let (one, other) = (Net::reserve().unwrap(), Net::reserve().unwrap());
        assert_ne!(one.octet, other.octet);
        let addresses: std::collections::HashSet<_> = (0..1000).map(|_| one.address()).collect();
        assert_eq!(addresses.len(), 1000);
    }
}
