//! The options of a new volume, with the names of mkzonefs(8).

use crate::super_block::SuperBlock;
use zoneplug_core::Error;

impl SuperBlock {
    /// Builds the super block of a new volume: `options` as in `mkzonefs -o`, a new UUID, and the
    /// given owner and group unless the options set others.
    ///
    /// # Errors
    ///
    /// Fails for an unknown option or an invalid value.
    ///
    /// ```
    /// use zoneplug_zonefs::SuperBlock;
    /// let sb = SuperBlock::of_options("aggr_cnv,perm=600", 1000, 1000).unwrap();
    /// assert_eq!((sb.aggregate_conventional, sb.mode, sb.uid), (true, 0o600, 1000));
    /// assert!(SuperBlock::of_options("perm=888", 0, 0).is_err());
    /// ```
    pub fn of_options(options: &str, uid: u32, gid: u32) -> Result<SuperBlock, Error> {
        let mut sb = SuperBlock { uid, gid, ..SuperBlock::default() };
        for word in options.split(',').filter(|w| !w.is_empty()) {
            let no = |hint: &str| Error::invalid(format!("{word} is no format option")).hint(hint);
            match word.split_once('=') {
                None if word == "aggr_cnv" => sb.aggregate_conventional = true,
                Some(("uid", n)) => sb.uid = n.parse().map_err(|_| no("uid=1000"))?,
                Some(("gid", n)) => sb.gid = n.parse().map_err(|_| no("gid=1000"))?,
                Some(("perm", n)) => {
                    let mode = u32::from_str_radix(n, 8).ok().filter(|m| *m <= 0o777);
                    sb.mode = mode.ok_or_else(|| no("perm=640, an octal number"))?;
                }
                Some(("label", text)) if text.len() < 64 => sb.label = text.to_owned(),
                _ => return Err(no("aggr_cnv, uid=, gid=, perm=, label= (63 bytes)")),
            }
        }
        // A UUID of version 4, random. Without random bytes it is all zeroes, which is valid too.
        if getrandom::fill(&mut sb.uuid).is_ok() {
            sb.uuid[6] = sb.uuid[6] & 0x0f | 0x40;
            sb.uuid[8] = sb.uuid[8] & 0x3f | 0x80;
        }
        Ok(sb)
    }
}
