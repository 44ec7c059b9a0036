"""What a person chooses about the cluster, as opposed to the target: names, image, storage."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass

from launcher.findings import Finding, LauncherError

# RFC 1035 label: a Service's name is one, and the Service bears the deployment's name.
NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
IMAGE = re.compile(r"[a-z0-9][\w.:/-]*(@sha256:[0-9a-f]{64})?")
QUANTITY = re.compile(r"[1-9][0-9]*(Mi|Gi|Ti|M|G|T)")
PORT = r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
URL = re.compile(rf"https?://[A-Za-z0-9.-]+(:({PORT}))?")

MAX_NAME = 40
"""Characters of a deployment's name: what is made from it (`NAME-model-download-xxxxx`) stays within 63, and
name and component together within the 45 that Grove allows."""


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of `launcher render`; each is a flag of its name."""

    name: str | None = None
    """Of everything rendered; the target's where not given."""
    namespace: str | None = None
    """Left to `kubectl -n` where not given."""
    image: str | None = None
    """The launcher's image, built from the Dockerfile and pushed where the cluster can pull."""
    runtime_image: str | None = None
    """The engine's own image, which a DynamoGraphDeployment runs; the target's where not given."""
    secret: str = "hf-token-secret"
    """Secret with HF_TOKEN. It may be missing: the models are public."""
    storage_class: str | None = None
    """The cluster's default where not given; it must offer ReadWriteMany."""
    storage: str = "200Gi"
    """Size of the model cache: 61 GiB of weights, the draft head, a second revision beside them, compile caches."""
    claim: str = "model-cache"
    """PersistentVolumeClaim with the model cache; one for all targets of a namespace."""
    url: str | None = None
    """What the benchmark asks; the deployment's Service where not given."""

    def check(self) -> None:
        """Raise LauncherError with one finding for each value that Kubernetes would refuse."""
        findings = list(self._findings())
        if findings:
            raise LauncherError(findings)

    def _findings(self) -> Iterator[Finding]:
        if self.name is not None:
            yield from name_findings(self.name, "--name")
        for value, flag, pattern, most, form in (
            (self.namespace, "--namespace", LABEL, 63, "lower-case letters, digits and dashes"),
            (self.secret, "--secret", SUBDOMAIN, 253, "lower-case letters, digits, dashes and dots"),
            (self.claim, "--claim", SUBDOMAIN, 253, "lower-case letters, digits, dashes and dots"),
            (
                self.storage_class,
                "--storage-class",
                SUBDOMAIN,
                253,
                "lower-case letters, digits, dashes and dots",
            ),
            (self.image, "--image", IMAGE, 512, "REGISTRY/NAME:TAG, or @sha256: and the digest"),
            (
                self.runtime_image,
                "--runtime-image",
                IMAGE,
                512,
                "REGISTRY/NAME:TAG, or @sha256: and the digest",
            ),
            (self.storage, "--storage", QUANTITY, 20, "a number with a unit, such as 200Gi"),
            (self.url, "--url", URL, 512, "http://HOST:PORT"),
        ):
            if value is not None and (len(value) > most or not pattern.fullmatch(value)):
                yield Finding(code="render-option", what=f"{value!r} cannot be used", where=flag, fix=form)

    def given(self) -> list[str]:
        """The flags that differ from their defaults, to show how a manifest was made."""
        words = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                words += ["--" + field.name.replace("_", "-"), str(value)]
        return words


def name_findings(name: str, where: str) -> Iterator[Finding]:
    """What is wrong with a deployment's name."""
    if len(name) > MAX_NAME or not NAME.fullmatch(name):
        yield Finding(
            code="render-name",
            what=f"{name!r} cannot name a Service and what is made from it",
            where=where,
            fix=f"--name with at most {MAX_NAME} lower-case letters, digits and dashes, a letter first",
        )
