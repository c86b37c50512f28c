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

	/**
	 * The public key of a server that has keys, as one on another machine: `public-key` in its file server.key. Empty: a server
	 * without keys. It needs a plugin that is built with libsodium. It is not secret; it is packaged with the game.
	 */
	UPROPERTY(Config, EditAnywhere, Category = "AnimeGamer")
	FString ServerKey;

	/**
	 * The file NAME.key_secret with this player's own keys, read if there is a server key. A relative path begins in the project's
	 * folder Saved, of which nothing is packaged. Whoever has the file plays as its owner: ship none, give each player one.
	 */
	UPROPERTY(Config, EditAnywhere, Category = "AnimeGamer")
	FString SecretKeyFile = TEXT("AnimeGamer.key_secret");

	/** Seconds without an answer after which a request fails. */
	UPROPERTY(Config, EditAnywhere, Category = "AnimeGamer", meta = (ClampMin = "1"))
	float TimeoutSeconds = 30.0f;
};
