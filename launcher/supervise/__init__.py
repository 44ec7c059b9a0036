"""Process supervision of a plan: knows nothing of engines or of Dynamo.

    def main(custody: Custody) -> int:
        return uvloop.run(serve(plan, custody))

    async def serve(plan: Plan, custody: Custody) -> int:
        custody.folder(plan.run_dir)
        pump = LogPump(TextFormat(process.name for process in plan.processes))
        supervisor = Supervisor(plan, pump, hooks=Hooks(on_event=print), custody=custody)
        install_signals(supervisor)
        try:
            return await supervisor.run()
        finally:
            pump.close()

    sys.exit(run_as_init(main))

Nothing is imported here, so that `launcher.supervise.init` can be loaded alone by a process that stays small.
"""
