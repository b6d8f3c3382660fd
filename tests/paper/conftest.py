"""Nothing that these tests make stays in the user's cache."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOSKIP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
