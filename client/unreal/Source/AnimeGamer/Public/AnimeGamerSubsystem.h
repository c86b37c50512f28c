#pragma once

#include "Containers/Ticker.h"
#include "CoreMinimal.h"
#include "Subsystems/GameInstanceSubsystem.h"

#include "AnimeGamerSubsystem.generated.h"

class FAnimeGamerConnection;
class UAnimeGamerGame;

/** Owns the connection and the games. It lives as long as the game instance, so levels come and go. */
UCLASS()
class ANIMEGAMER_API UAnimeGamerSubsystem : public UGameInstanceSubsystem
{
	GENERATED_BODY()

public:
	virtual void Initialize(FSubsystemCollectionBase& Collection) override;
	virtual void Deinitialize() override;

	/** The game of this name, opened at its first use. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	UAnimeGamerGame* GetGame(FName Name);

private:
	friend class UAnimeGamerGame;
	bool Tick(float DeltaSeconds);

	UPROPERTY(Transient)
	TMap<FName, TObjectPtr<UAnimeGamerGame>> Games;
	TSharedPtr<FAnimeGamerConnection> Connection;
	FTSTicker::FDelegateHandle Ticker;
};
