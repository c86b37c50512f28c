#pragma once

#include "CoreMinimal.h"
#include "Engine/DeveloperSettings.h"

#include "AnimeGamerSettings.generated.h"

/** Project Settings > Game > AnimeGamer. */
UCLASS(Config = Game, DefaultConfig, meta = (DisplayName = "AnimeGamer"))
class ANIMEGAMER_API UAnimeGamerSettings : public UDeveloperSettings
{
	GENERATED_BODY()

public:
	/** Where `animegamer-rt serve` listens: tcp://HOST:PORT. */
	UPROPERTY(Config, EditAnywhere, Category = "AnimeGamer")
	FString Address = TEXT("tcp://127.0.0.1:5570");

	/** Seconds without an answer after which a request fails. */
	UPROPERTY(Config, EditAnywhere, Category = "AnimeGamer", meta = (ClampMin = "1"))
	float TimeoutSeconds = 30.0f;
};
