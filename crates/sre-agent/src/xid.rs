//! What an XID means for a node: NVIDIA's catalogue, DCGM's severities and the practice of others, condensed into one
//! table (`reference/self-healing.md` section 2.1 names the sources and where they disagree).

use std::fmt;
use std::str::FromStr;

/// What a signal asks for, in rising severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Nothing.
    Ignore,
    /// An application fault: the pod's owner should know.
    App,
    /// To be watched; never disruptive.
    Watch,
    /// The GPU needs a reset.
    Reset,
    /// The node needs a reboot.
    Reboot,
    /// The hardware needs service.
    Service,
}

impl Class {
    /// Whether the node must not take new work.
    pub const fn is_fatal(self) -> bool {
        matches!(self, Self::Reset | Self::Reboot | Self::Service)
    }

    /// The letter used in status and metrics.
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Ignore => "I",
            Self::App => "A",
            Self::Watch => "W",
            Self::Reset => "R",
            Self::Reboot => "B",
            Self::Service => "S",
        }
    }

    /// What helps, for people.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Ignore => "nothing",
            Self::App => "look at the application",
            Self::Watch => "watch it",
            Self::Reset => "reset the GPU",
            Self::Reboot => "reboot the node",
            Self::Service => "have the hardware serviced, then uncordon the node",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.letter())
    }
}

impl FromStr for Class {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let all = [
            Self::Ignore,
            Self::App,
            Self::Watch,
            Self::Reset,
            Self::Reboot,
            Self::Service,
        ];
        all.into_iter()
            .find(|class| class.letter() == text)
            .ok_or(())
    }
}

/// How one XID is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its class.
    pub class: Class,
    /// Hardware latches it: one sample is enough to believe it.
    pub latched: bool,
    /// Occurrences within a day that it takes.
    pub min_count: usize,
    /// The class after `min_count` occurrences on the same GPU, where it differs.
    pub repeated: Option<Class>,
}

/// The rule of an XID. An unknown one is watched and never disruptive.
pub fn rule(xid: u32) -> Rule {
    let plain = |class| Rule {
        class,
        latched: false,
        min_count: 1,
        repeated: None,
    };
    match xid {
        // Once is the application; the same GPU again within a day deserves a look.
        13 | 31 => Rule {
            min_count: 2,
            repeated: Some(Class::Watch),
            ..plain(Class::App)
        },
        94 => Rule {
            min_count: 4,
            repeated: Some(Class::Watch),
            ..plain(Class::App)
        },
        8
        | 11
        | 25
        | 32
        | 39..=41
        | 43
        | 60
        | 68..=72
        | 75..=77
        | 80
        | 82..=86
        | 88
        | 89
        | 96..=105
        | 126..=135
        | 137
        | 139 => plain(Class::App),
        // 45 follows another fault, and one job can log thousands of them.
        37 | 38 | 44 | 45 | 66 | 67 | 78 | 93 | 106 | 107 | 141 | 152 | 153 | 160..=164 => {
            plain(Class::Ignore)
        }
        79 => Rule {
            latched: true,
            ..plain(Class::Reboot)
        },
        64 => Rule {
            latched: true,
            ..plain(Class::Service)
        },
        // The device plugin takes it for an application fault: believe the second one.
        109 => Rule {
            min_count: 2,
            repeated: Some(Class::Reset),
            ..plain(Class::Watch)
        },
        46 | 48 | 61 | 62 | 74 | 95 | 110 | 119 | 120 | 136 | 140 | 143 | 150 | 155 | 156 | 158 => {
            plain(Class::Reset)
        }
        151 | 167 | 169 => plain(Class::Reboot),
        54 | 142 => plain(Class::Service),
        // 63, 92, 121, 144-149, 154 (its value is a metric of its own), 157, 165, 166, 168, 170-172 and all others.
        _ => plain(Class::Watch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_the_table() {
        let cases = [
            (79, Class::Reboot),
            (48, Class::Reset),
            (119, Class::Reset),
            (64, Class::Service),
            (54, Class::Service),
            (63, Class::Watch),
            (13, Class::App),
            (31, Class::App),
            (94, Class::App),
            (45, Class::Ignore),
            (43, Class::App),
            (109, Class::Watch),
            (151, Class::Reboot),
            (999, Class::Watch),
            (0, Class::Watch),
        ];
        for (xid, class) in cases {
            assert_eq!(rule(xid).class, class, "xid {xid}");
        }
    }

    #[test]
    fn no_unknown_xid_is_disruptive() {
        assert!((173..2000).all(|xid| !rule(xid).class.is_fatal()));
    }

    #[test]
    fn letters_are_read_back() {
        for class in [
            Class::Ignore,
            Class::App,
            Class::Watch,
            Class::Reset,
            Class::Reboot,
            Class::Service,
        ] {
            assert_eq!(class.letter().parse(), Ok(class));
        }
    }
}
