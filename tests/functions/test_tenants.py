import pytest

from forbear.tenants import InvalidTenant, validate


@pytest.mark.parametrize(
    "name", ["a", "0", "acme", "Acme-Inc_1", "org:42", "a.b@c.example", "auth0|5f7c", "a+b=c", "x" * 128]
)
def test_letters_digits_and_a_few_signs_name_a_tenant(name: str) -> None:
    assert validate(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-a", "_", "a b", "a/b", "a\\b", "a,b", "é", "a\n", "a\0", "a%20", "a?", "a#", "x" * 129]
)
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(InvalidTenant, match="a tenant's name has") as refused:
        validate(name)
    assert len(str(refused.value)) < 300
