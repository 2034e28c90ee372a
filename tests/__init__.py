"""The tests of surefoot. A package, so that tests may share helpers (`from tests.support import …`)."""
