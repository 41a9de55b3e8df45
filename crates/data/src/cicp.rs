//! How colours are written, in code points (ITU-T H.273), as AVIF and PNG files hold them.

use anyhow::{Result, anyhow, ensure};
use moxcms::{CicpColorPrimaries, CicpProfile, ColorProfile, MatrixCoefficients, TransferCharacteristics};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cicp {
    pub primaries: u16,
    pub transfer: u16,
    pub matrix: u16,
    pub is_full_range: bool,
}

impl Cicp {
    /// Refuses pictures that are brighter than a page.
    pub fn admit(self) -> Result<()> {
        for (transfer, name) in [(16, "PQ"), (18, "HLG")] {
            ensure!(self.transfer != transfer, "an HDR picture ({name}), which can't be read here; convert it to PNG in sRGB");
        }
        Ok(())
    }

    /// The profile of the colours, if they aren't sRGB's; an error if the points are of no known meaning.
    pub fn profile(self) -> Result<Option<Vec<u8>>> {
        let code = |point: u16| u8::try_from(point).unwrap_or_default();
        // The curves of television are shown by sRGB's wherever pictures are shown.
        let transfer = match self.transfer {
            1 | 2 | 6 | 13 | 14 | 15 => TransferCharacteristics::Srgb,
            other => TransferCharacteristics::try_from(code(other)).map_err(|_| anyhow!("there is no known curve {other}"))?,
        };
        let primaries = match self.primaries {
            1 | 2 if transfer == TransferCharacteristics::Srgb => return Ok(None),
            2 => CicpColorPrimaries::Bt709,
            other => CicpColorPrimaries::try_from(code(other)).map_err(|_| anyhow!("there are no known primaries {other}"))?,
        };
        let profile = CicpProfile {
            color_primaries: primaries,
            transfer_characteristics: transfer,
            matrix_coefficients: MatrixCoefficients::Identity,
            full_range: true,
        };
        let profile = ColorProfile::new_from_cicp(profile);
        ensure!(profile.red_trc.is_some(), "there are no known primaries {} with the curve {}", self.primaries, self.transfer);
        profile.encode().map(Some).map_err(|error| anyhow!("{error}"))
    }
}
