// Session Frontend > Automation > AnimeGamer. It needs no server.
#include "AnimeGamerSettings.h"
#include "Core/TextureRing.h"
#include "CoreMinimal.h"
#include "Misc/AutomationTest.h"

#if WITH_DEV_AUTOMATION_TESTS

BEGIN_DEFINE_SPEC(FAnimeGamerSpec, "AnimeGamer",
	EAutomationTestFlags::ProductFilter | EAutomationTestFlags::EditorContext | EAutomationTestFlags::ClientContext)
END_DEFINE_SPEC(FAnimeGamerSpec)

void FAnimeGamerSpec::Define()
{
	Describe("Project settings", [this]()
	{
		It("name the address that animegamer-rt serve listens at", [this]()
		{
			TestTrue("address", GetDefault<UAnimeGamerSettings>()->Address.StartsWith(TEXT("tcp://")));
		});
	});
	Describe("The ring of textures", [this]()
	{
		It("never writes the texture that is shown", [this]()
		{
			animegamer_unreal::TextureRing Ring;
			for (uint64 Tick = 0; Tick < 100; ++Tick)
			{
				const int32 Slot = Ring.begin_write(Tick);
				if (Slot >= 0)
				{
					TestTrue("another one is shown", Slot != Ring.shown());
					Ring.end_write(Slot);
				}
				Ring.show(Tick);
			}
			TestTrue("one is shown", Ring.shown() >= 0);
		});
	});
}

#endif
