#!/usr/bin/env python3
"""Records how openai-harmony renders the tools of a developer message, in harmony_tools.json.

    pip install openai-harmony==0.0.8
    TIKTOKEN_ENCODINGS_BASE=DIR python record_harmony.py    DIR holds o200k_base.tiktoken
"""
import json
import pathlib

import openai_harmony as h

HERE = pathlib.Path(__file__).parent


def props(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required)}


CASES = {
    "no parameters": None,
    "no properties": props(),
    "an object without a type": {"properties": {"a": {"type": "string"}}},
    "the parameters' description": {"description": "All of it.", **props(["a"], a={"type": "string"})},
    "plain types": props(
        ["s", "i"], s={"type": "string"}, i={"type": "integer"}, n={"type": "number"}, b={"type": "boolean"},
        z={"type": "null"}, u={"type": "strange"}, any={}, no=False,
    ),
    "title, description and examples": props(
        a={"type": "string", "title": "STRING", "description": "A text.", "examples": ["x", 'y "z"', 3]},
        b={"type": "integer", "title": "INT", "examples": []}, c={"type": "number", "examples": [1]}, d={"type": "string", "description": "two\nlines"},
    ),
    "defaults": props(
        s={"type": "string", "default": "x"}, q={"type": "string", "default": 'a "b"'}, e={"type": "string", "enum": ["a", "b"], "default": "a"},
        i={"type": "integer", "default": 3}, f={"type": "number", "default": 0.5}, b={"type": "boolean", "default": False},
        z={"type": "string", "default": None}, o={"type": "object", "default": {"a": [1, "x"]}}, empty={"type": "string", "default": ""},
    ),
    "enums": props(a={"type": "string", "enum": ["a", 'b "c"', 3]}, b={"type": "integer", "enum": [1, 2]}, c={"enum": ["x"]}, d={"type": "string", "enum": []}),
    "nullable": props(
        a={"type": "string", "nullable": True}, b={"type": ["string", "null"]}, c={"type": ["integer", "null"], "nullable": True},
        d={"type": "string", "nullable": True, "default": "x"}, e={"type": "string", "nullable": False}, f={"type": ["integer"]}, g={"type": []},
    ),
    "arrays": props(
        a={"type": "array", "items": {"type": "string"}}, b={"type": "array"}, c={"type": "array", "items": {"type": ["string", "integer"]}},
        d={"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, e={"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        f={"type": "array", "items": props(["x"], x={"type": "number", "description": "x of it"})}, g={"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "number"}]}},
    ),
    "objects": props(
        ["a"], a={"description": "Where.", **props(["lat"], lat={"type": "number", "description": "North.", "default": 1}, deep=props(x={"type": "string"}))},
        b=props(), c={"type": "object"}, d={"type": "object", "additionalProperties": {"type": "string"}},
    ),
    "oneOf": props(
        ["b"],
        a={"description": "a oneof", "default": 20, "oneOf": [{"type": "string", "default": "default_string_in_oneof"}, {"type": "number", "description": "numbers can happen too"}]},
        b={"oneOf": [{"type": "string", "description": "a name"}, {"type": "number", "default": 3, "nullable": True}]},
        c={"description": "same", "oneOf": [{"type": "string", "description": "same"}, {"type": "number", "description": "same"}, {"type": "boolean", "description": "other"}]},
        d={"default": "x", "oneOf": [{"type": "string", "enum": ["x", "y"], "default": "x"}, {"type": "integer"}]},
        e={"type": "string", "enum": ["x"], "default": "x", "oneOf": [{"type": "string"}]},
        f={"oneOf": [props(["x"], x={"type": "number", "description": "deep"}), {"type": "array", "items": {"type": "string"}}], "title": "T", "examples": ["q"]},
        g={"oneOf": []}, h={"oneOf": "none", "type": "string", "description": "lost", "default": "lost"},
        i={"description": "of all", "oneOf": [{"type": "string", "description": "of the first"}, {"type": "number", "description": "of the second"}]},
    ),
    "oneOf at the top": {"oneOf": [{**props(a={"type": "string"}), "description": "first"}, {"type": "string", "enum": ["x"], "default": "x", "nullable": True}, {"type": "string", "default": "y"}, {"type": "integer", "default": 3, "description": "third"}]},
    "oneOf within oneOf": props(a={"oneOf": [{"oneOf": [{"type": "string", "description": "in"}, {"type": "number"}]}, {"type": "boolean"}]}),
    "anyOf, allOf, $ref": props(a={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, b={"allOf": [{"type": "string"}]}, c={"$ref": "#/$defs/x"}, d={"const": "x"}),
}


def main():
    encoding = h.load_harmony_encoding(h.HarmonyEncodingName.HARMONY_GPT_OSS)
    out = []
    for name, parameters in CASES.items():
        for description in ["Does it.", "Two\r\nlines.\n", ""] if name == "no parameters" else ["Does it."]:
            tool = h.ToolDescription.new("f", description, parameters=parameters)
            content = h.DeveloperContent.new().with_function_tools([tool])
            message = h.Message.from_role_and_content(h.Role.DEVELOPER, content)
            want = encoding.decode(encoding.render(message))
            function = {"name": "f", "description": description}
            if parameters is not None:
                function["parameters"] = parameters
            out.append({"name": name, "tool": {"type": "function", "function": function}, "want": want.split("\n")})
    (HERE / "harmony_tools.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
