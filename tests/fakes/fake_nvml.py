"""`pynvml` for tests: cards that tell what NVML tells. Only the functions that the runtime calls."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace


class FakeNvml(ModuleType):
    """cards: their UUIDs. lacks: of driver, memory, temperature, power, what raises as NVML does."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self, cards: tuple[str, ...] = ("GPU-a",), lacks: tuple[str, ...] = ()) -> None:
        super().__init__("pynvml")
        self._cards, self._lacks = cards, lacks
        self.throttle_bits = 0

    def _offer(self, name: str) -> None:
        if name in self._lacks:
            raise self.NVMLError("Not Supported")

    def nvmlInit(self) -> None:
        self._offer("driver")

    def nvmlSystemGetDriverVersion(self) -> str:
        return "590.48"

    def nvmlDeviceGetCount(self) -> int:
        return len(self._cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return self._cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self._cards:
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetName(self, handle: str) -> str:
        return f"Card {handle}"

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return {1: 1980, 2: 2619}[kind]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self.throttle_bits

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        self._offer("memory")
        return SimpleNamespace(total=80 * 2**30, used=3 * 2**30)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        self._offer("temperature")
        return 41

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        self._offer("power")
        return 120_000
