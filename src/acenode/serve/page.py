"""The OpenAPI description as a plain page of HTML, which needs nothing from elsewhere."""

import json
from html import escape
from typing import Any

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{background:#f3f3f3;border-radius:3px;padding:.1rem .3rem}pre{overflow-x:auto;padding:.6rem}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2rem .5rem;text-align:left}"
)


def page(described: dict[str, Any]) -> str:
    """The page of an OpenAPI description."""
    info = described["info"]
    parts = [f"<h1>{escape(info['title'])}</h1>", f"<p>{escape(info.get('description', ''))}</p>"]
    parts.append('<p>For machines: <a href="openapi.json">openapi.json</a></p>')
    for path, methods in described["paths"].items():
        for method, what in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            parts.append(f"<p>{escape(what.get('description') or what.get('summary', ''))}</p>")
            parts += [
                f"<p>Parameter <code>{escape(each['name'])}</code> ({escape(each['in'])}): "
                f"{escape(each.get('description', ''))}</p>"
                for each in what.get("parameters", ())
            ]
            if "requestBody" in what:
                content = what["requestBody"]["content"]["application/json"]
                parts.append(f"<p>Body: {_named(content['schema'])}</p>")
                if "example" in content:
                    parts.append(f"<pre>{escape(json.dumps(content['example'], indent=1))}</pre>")
            rows = "".join(
                f"<tr><td>{escape(code)}</td><td>{escape(answer.get('description', ''))}</td><td>{_answered(answer)}"
                "</td></tr>"
                for code, answer in what.get("responses", {}).items()
            )
            parts.append(f"<table><tr><th>status</th><th></th><th>answer</th></tr>{rows}</table>")
    parts.append("<h2>Schemas</h2>")
    for name, schema in described.get("components", {}).get("schemas", {}).items():
        parts.append(f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(schema.get("description", ""))}</p>')
        parts.append(f"<pre>{escape(json.dumps(schema.get('properties', {}), indent=1))}</pre>")
    head = f'<meta charset="utf-8"><title>{escape(info["title"])}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _named(schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f'<a href="#{escape(name)}">{escape(name)}</a>' if name else escape(json.dumps(schema))


def _answered(answer: dict[str, Any]) -> str:
    schema = answer.get("content", {}).get("application/json", {}).get("schema")
    return _named(schema) if schema else ""
