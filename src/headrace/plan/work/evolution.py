"""State variables of a processor between two runs: which changes of their schemas stored values allow.

Values are stored by position, so nullable fields may be added at the end. Types may widen: whole numbers to
wider ones or to floating point, float to double, decimals to more digits. Schemas are Spark's JSON. Pure
decisions.
"""

from __future__ import annotations

import json
import re
from typing import Any

_WHOLE = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def schema_changes(before: str, now: str) -> list[str]:
    """What keeps values of one schema from being read with another, for people; empty if nothing does."""
    return _struct_changes(json.loads(before), json.loads(now), "")


def _struct_changes(before: dict[str, Any], now: dict[str, Any], path: str) -> list[str]:
    old, new = before["fields"], now["fields"]
    if len(new) < len(old):
        gone = ", ".join(path + field["name"] for field in old[len(new) :])
        return [f"{gone}: fields are missing at the end"]
    changed = []
    for one, other in zip(old, new, strict=False):
        if one["name"] != other["name"]:
            return [f"{path}{one['name']} became {path}{other['name']}; new fields go to the end"]
        changed += _type_changes(one["type"], other["type"], path + one["name"])
    changed += [
        f"{path}{field['name']} is new and not nullable" for field in new[len(old) :] if not _null(field)
    ]
    return changed


def _null(field: dict[str, Any]) -> bool:
    return bool(field.get("nullable", True))


def _type_changes(before: Any, now: Any, path: str) -> list[str]:
    if before == now or _is_wider(before, now):
        return []
    if isinstance(before, dict) and isinstance(now, dict) and before["type"] == now["type"]:
        match before["type"]:
            case "struct":
                return _struct_changes(before, now, f"{path}.")
            case "array":
                return _type_changes(before["elementType"], now["elementType"], f"{path}[]")
            case "map" if before["keyType"] == now["keyType"]:
                return _type_changes(before["valueType"], now["valueType"], f"{path}[]")
    return [f"{path} was {_text(before)}, is now {_text(now)}"]


def _is_wider(before: Any, now: Any) -> bool:
    if not isinstance(before, str) or not isinstance(now, str):
        return False
    if before in _WHOLE:
        return now in (*_WHOLE[_WHOLE.index(before) :], "float", "double")
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(now)
    if old is not None and new is not None:
        scales, digits = (int(old[2]), int(new[2])), [int(one[1]) - int(one[2]) for one in (old, new)]
        return scales[0] <= scales[1] and digits[0] <= digits[1]
    return (before, now) == ("float", "double")


def _text(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind.get("type"))
