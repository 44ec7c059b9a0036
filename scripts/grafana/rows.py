"""What the dashboard shows: its rows and their panels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .panels import HERE, UP_DOWN, WORKER, YES_NO, graph, panel, quantiles, rate, share, stat


def rows() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Row titles and their panels."""
    yield (
        "Deployment",
        [
            stat("Ready", "/readyz", f"min(launcher_ready{{{HERE}}})", defaults=YES_NO),
            stat(
                "Workers ready",
                "Healthy workers of each role; planned ones beside them",
                f"sum by (role) (launcher_workers_ready{{{HERE}}})",
                legend="{{role}}",
            ),
            stat(
                "Workers planned",
                "What the plan has of each role",
                f"sum by (role) (launcher_workers_planned{{{HERE}}})",
                legend="{{role}}",
            ),
            stat(
                "Time to ready",
                "From the start to the first time ready",
                f"max(launcher_time_to_ready_seconds{{{HERE}}})",
                "s",
            ),
            stat(
                "Restarts, 1 h",
                "Restarts that nobody asked for",
                f'sum(increase(launcher_worker_restarts_total{{{HERE},reason!="asked"}}[1h]))',
                defaults={"decimals": 0},
            ),
            stat("Incidents", "Incident files of this run", f"sum(launcher_incidents_total{{{HERE}}})"),
            stat(
                "Draining",
                "Told to end",
                f"max(launcher_draining{{{HERE}}})",
                defaults={"mappings": YES_NO["mappings"]},
            ),
            stat(
                "Runs",
                "Target, engine and plan",
                f"launcher_build_info{{{HERE}}}",
                legend="{{target}} · {{engine}} · plan {{plan}} · simulated {{simulated}}",
            )
            | {
                "options": {
                    "textMode": "name",
                    "graphMode": "none",
                    "reduceOptions": {"calcs": ["lastNotNull"]},
                }
            },
        ],
    )
    frontend = "dynamo_frontend"
    yield (
        "Traffic",
        [
            graph(
                "Requests",
                "Finished requests by outcome",
                "reqps",
                [(rate(f"{frontend}_requests_total", "status"), "{{status}}")],
            ),
            graph(
                "Tokens",
                "Tokens answered and tokens asked; a long answer counts where its tokens are made",
                "none",
                [
                    (rate(f"{frontend}_output_tokens_total"), "output tok/s"),
                    (rate(f"{frontend}_input_sequence_tokens_sum"), "input tok/s"),
                ],
            ),
            graph(
                "In flight",
                "Requests being answered, and waiting for a first token",
                "none",
                [
                    (f"sum({frontend}_inflight_requests{{{HERE}}})", "in flight"),
                    (f"sum({frontend}_queued_requests{{{HERE}}})", "queued"),
                ],
            ),
        ],
    )
    yield (
        "Latency",
        [
            graph(
                "Time to first token",
                "TTFT at the frontend",
                "s",
                quantiles(f"{frontend}_time_to_first_token_seconds"),
            ),
            graph(
                "Inter-token latency",
                "ITL at the frontend",
                "s",
                quantiles(f"{frontend}_inter_token_latency_seconds"),
            ),
            graph(
                "Request duration", "At the frontend", "s", quantiles(f"{frontend}_request_duration_seconds")
            ),
        ],
    )
    router = "dynamo_component_router"
    yield (
        "KV cache and router",
        [
            graph(
                "Router hit rate",
                "Share of a request's blocks that the chosen worker already had, as the router predicts it",
                "percentunit",
                [(share(f"{router}_kv_hit_rate_sum", f"{router}_kv_hit_rate_count"), "hit rate")],
            ),
            graph(
                "Cached prompt tokens",
                "Share of the prompt tokens that were not computed again, as the workers report it",
                "percentunit",
                [(share(f"{frontend}_cached_tokens_sum", f"{frontend}_input_sequence_tokens_sum"), "cached")],
            ),
            graph(
                "KV usage",
                "Of each worker's KV blocks",
                "percentunit",
                [(f"vllm:kv_cache_usage_perc{{{WORKER}}}", "{{worker}}")],
            ),
            graph(
                "Active KV blocks",
                "As the router counts them",
                "none",
                [
                    (
                        f"sum by (worker_type, worker_id) ({frontend}_worker_active_decode_blocks{{{HERE}}})",
                        "{{worker_type}} {{worker_id}}",
                    )
                ],
            ),
        ],
    )
    yield (
        "Workers",
        [
            panel(
                "state-timeline",
                "Up",
                "Ready and well, by the launcher's own probes",
                "none",
                [(f"launcher_worker_up{{{WORKER}}}", "{{worker}}")],
                defaults=UP_DOWN,
                options={"showValue": "never", "mergeValues": True},
            ),
            graph(
                "Requests per worker",
                "Requests that each worker has finished",
                "reqps",
                [(rate("dynamo_component_requests_total", "worker", WORKER), "{{worker}}")],
            ),
            graph(
                "Running and waiting",
                "Requests in each engine's batch, and before it",
                "none",
                [
                    (f"sum by (worker) (vllm:num_requests_running{{{WORKER}}})", "{{worker}} running"),
                    (f"sum by (worker) (vllm:num_requests_waiting{{{WORKER}}})", "{{worker}} waiting"),
                ],
            ),
            graph(
                "Mean time at the worker",
                "From the request's arrival at the worker to its last token",
                "s",
                [
                    (
                        share(
                            "dynamo_component_request_duration_seconds_sum",
                            "dynamo_component_request_duration_seconds_count",
                            "worker",
                            WORKER,
                        ),
                        "{{worker}}",
                    )
                ],
            ),
            graph(
                "Restarts",
                "Within five minutes, by what made them necessary",
                "none",
                [
                    (
                        f"sum by (worker, reason) (increase(launcher_worker_restarts_total{{{WORKER}}}[5m])) > 0",
                        "{{worker}}: {{reason}}",
                    )
                ],
            ),
            panel(
                "bargauge",
                "Loading",
                "Seconds from a process's start to each phase of its loading",
                "s",
                [(f"launcher_worker_phase_seconds{{{WORKER}}}", "{{worker}} {{phase}}")],
                options={"orientation": "horizontal", "reduceOptions": {"calcs": ["lastNotNull"]}},
            ),
            graph(
                "GPU memory",
                "In use, by whomever",
                "bytes",
                [
                    (f"launcher_gpu_memory_used_bytes{{{HERE}}}", "GPU {{gpu}}"),
                    (f"max(launcher_gpu_memory_bytes{{{HERE}}})", "size"),
                ],
            ),
        ],
    )
    yield (
        "Launcher",
        [
            graph(
                "Scrapes",
                "1 where a process gave its metrics",
                "none",
                [(f"launcher_scrape_up{{{WORKER}}}", "{{worker}}")],
            ),
            graph(
                "Log lines",
                "Read from the processes, and dropped because stdout was too slow",
                "none",
                [
                    (rate("launcher_log_lines_total"), "lines/s"),
                    (rate("launcher_log_lines_dropped_total"), "dropped/s"),
                ],
            ),
            graph(
                "Discovery",
                "Registrations of living workers written back, and of dead ones removed",
                "none",
                [
                    (f"sum(increase(launcher_discovery_restored_total{{{HERE}}}[5m]))", "restored"),
                    (f"sum(increase(launcher_discovery_withdrawn_total{{{HERE}}}[5m]))", "withdrawn"),
                ],
            ),
            graph(
                "Memory",
                "Of the launcher itself",
                "bytes",
                [(f"launcher_process_resident_memory_bytes{{{HERE}}}", "resident")],
            ),
        ],
    )
