"""An authority of the test's own and certificates of it, by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@dataclass(frozen=True, slots=True)
class Pair:
    """Files of a certificate and its key."""

    cert: str
    key: str


class Authority:
    """Signs what it is asked to."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder, self._name = folder, name
        self.file = str(folder / f"{name}.crt")
        _openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out",
                 f"{name}.crt", "-days", "2", "-subj", f"/CN=test {name}", "-addext", "keyUsage=critical,keyCertSign",
                 "-addext", "basicConstraints=critical,CA:TRUE")  # fmt: skip

    def sign(self, name: str, *addresses: str, subject: str = "/O=test", days: int = 2) -> Pair:
        """A pair for these addresses; `days` -1: it has expired."""
        _openssl(self._folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out",
                 f"{name}.csr", "-subj", subject)  # fmt: skip
        alternatives = ",".join(f"IP:{each}" for each in addresses or ("127.0.0.9",))
        (self._folder / f"{name}.ext").write_text(
            f"subjectAltName={alternatives}\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n"
        )
        _openssl(self._folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{self._name}.crt", "-CAkey",
                 f"{self._name}.key", "-CAcreateserial", "-out", f"{name}.crt", "-days", str(days), "-extfile",
                 f"{name}.ext")  # fmt: skip
        return Pair(str(self._folder / f"{name}.crt"), str(self._folder / f"{name}.key"))


def environ(authority: Authority, pair: Pair | None = None) -> dict[str, str]:
    """The variables that name them."""
    found = {"ETCD_AUTH_CA": authority.file}
    if pair is not None:
        found |= {"ETCD_AUTH_CLIENT_CERT": pair.cert, "ETCD_AUTH_CLIENT_KEY": pair.key}
    return found
