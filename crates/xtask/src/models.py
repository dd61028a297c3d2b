# What the agent server's environment knows of models: run by `cargo xtask models` in it. Prints one JSON document.
import importlib.metadata
import json

import litellm
from openhands.sdk.llm.utils.verified_models import VERIFIED_MODELS
from openhands.sdk.settings.acp_providers import ACP_PROVIDERS

usable = {getattr(provider, "value", provider) for provider in litellm.provider_list}
usable.add("openhands")
print(
    json.dumps(
        {
            "versions": {name: importlib.metadata.version(name) for name in ("litellm", "openhands-sdk")},
            "models": sorted({*litellm.model_list, *litellm.model_cost}),
            "verified": {name: models for name, models in VERIFIED_MODELS.items() if name in usable},
            "acp": [
                {
                    "key": provider.key,
                    "display_name": provider.display_name,
                    "default_command": list(provider.default_command),
                    "default_model": provider.default_model,
                    "available_models": [
                        {"id": model.id, "label": model.label} for model in provider.available_models
                    ],
                    "api_key_env_var": provider.api_key_env_var,
                    "base_url_env_var": provider.base_url_env_var,
                }
                for provider in ACP_PROVIDERS.values()
            ],
        }
    )
)
