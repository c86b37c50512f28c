#pragma once

#include "UnrealStubs.h"

struct FPlatformTime {
	static double Seconds() { return static_cast<double>(GFrameCounter) / 60.0; } // no test depends on the machine's speed
};
