"""A certificate authority of a test's own, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_certificates(folder: Path, *, authority: str = "ca") -> None:
    """An authority (``ca.pem``), and its certificate for 127.0.0.1 (``server.pem``)."""
    now = datetime.datetime.now(datetime.UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (authority, "server")
    ]
    for number, name in enumerate(("ca", "server")):
        made = (
            x509.CertificateBuilder()
            .subject_name(names[number])
            .issuer_name(names[0])
            .public_key(keys[number].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=number == 0, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .sign(keys[0], hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        key = keys[number].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        (folder / f"{name}-key.pem").write_bytes(key)
