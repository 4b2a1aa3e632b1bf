// SPDX-License-Identifier: MIT
//! Tiers: places outside of caches that keep full blocks.
use crate::config::{optional, path_text, text, Text};
use crate::error::{check, refuse, Result};
use crate::ffi;
use std::os::raw::c_int;
use std::path::PathBuf;
use std::ptr::{null_mut, NonNull};

/// A tier, which caches share by `Arc` ([`Config::tiers`](crate::Config)). It ends with the last
/// cache that uses it; what it holds stays.
#[derive(Debug)]
pub struct Tier {
    raw: NonNull<ffi::pkv_tier>,
}

// SAFETY: any thread may use a tier at any time; only pkv_tier_destroy must be last, and drop is.
unsafe impl Send for Tier {}
unsafe impl Sync for Tier {}

/// A directory, which exists, for any number of processes at once.
#[derive(Clone, Debug, Default)]
pub struct DiskConfig {
    pub path: PathBuf,
    /// What the values take at most, from 4096 on; the oldest ones go.
    pub max_bytes: u64,
    /// How long a call waits for other processes; 0 = 1000.
    pub timeout_ms: i32,
    /// Who may read and write the files; 0 = 0o600.
    pub file_mode: u32,
}

/// A Redis or Valkey server, or a cluster; None and 0 are the defaults of the library. User,
/// password and values cross the network as they are (pagedkv/tier.h, Security).
#[derive(Clone, Default)]
pub struct RedisConfig {
    /// None = 127.0.0.1.
    pub host: Option<String>,
    /// 0 = 6379.
    pub port: u16,
    /// In the place of host and port.
    pub unix_socket: Option<PathBuf>,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Before every key; None = "pagedkv:".
    pub key_prefix: Option<String>,
    pub database: i32,
    /// When a value is removed after it was written; 0 = never.
    pub ttl_seconds: i32,
    pub connect_timeout_ms: i32,
    pub command_timeout_ms: i32,
    /// How long a server that failed is left alone.
    pub min_backoff_ms: i32,
    pub max_backoff_ms: i32,
    pub is_cluster: bool,
    /// Of a cluster: "host:port" of further nodes, separated by commas.
    pub more_nodes: Option<String>,
}

impl Tier {
    /// A tier in a directory.
    pub fn disk(config: &DiskConfig) -> Result<Tier> {
        let path = path_text("path", &config.path)?;
        let mut raw = ffi::pkv_disk_config::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        raw.path = path.as_ptr();
        raw.max_bytes = config.max_bytes;
        raw.timeout_ms = config.timeout_ms;
        raw.file_mode = config.file_mode;
        // SAFETY: the configuration and its path live during the call.
        Tier::make(|tier| unsafe { ffi::pkv_tier_create_disk(&raw, tier) })
    }

    /// A tier in a server. Nothing is sent before the first use;
    /// [`Error::Unsupported`](crate::Error) where the library was built without hiredis.
    pub fn redis(config: &RedisConfig) -> Result<Tier> {
        let texts = [
            text("host", &config.host)?,
            config.unix_socket.as_ref().map(|path| path_text("unix_socket", path)).transpose()?,
            text("user", &config.user)?,
            text("password", &config.password)?,
            text("key_prefix", &config.key_prefix)?,
            text("more_nodes", &config.more_nodes)?,
        ];
        let [host, unix_socket, user, password, key_prefix, more_nodes]: &[Text; 6] = &texts;
        let mut raw = ffi::pkv_redis_config::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        raw.host = optional(host);
        raw.unix_socket = optional(unix_socket);
        raw.user = optional(user);
        raw.password = optional(password);
        raw.key_prefix = optional(key_prefix);
        raw.more_nodes = optional(more_nodes);
        raw.port = i32::from(config.port);
        raw.database = config.database;
        raw.ttl_seconds = config.ttl_seconds;
        raw.connect_timeout_ms = config.connect_timeout_ms;
        raw.command_timeout_ms = config.command_timeout_ms;
        raw.min_backoff_ms = config.min_backoff_ms;
        raw.max_backoff_ms = config.max_backoff_ms;
        raw.is_cluster = config.is_cluster;
        // SAFETY: the configuration and its texts live during the call.
        Tier::make(|tier| unsafe { ffi::pkv_tier_create_redis(&raw, tier) })
    }

    fn make(create: impl FnOnce(*mut *mut ffi::pkv_tier) -> c_int) -> Result<Tier> {
        let mut raw = null_mut();
        check(create(&mut raw))?;
        match NonNull::new(raw) {
            Some(raw) => Ok(Tier { raw }),
            None => refuse("the library made no tier".to_string()),
        }
    }

    pub(crate) fn raw(&self) -> *mut ffi::pkv_tier {
        self.raw.as_ptr()
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        // SAFETY: the caches that use it own it, so they are gone.
        unsafe { ffi::pkv_tier_destroy(self.raw()) }
    }
}
