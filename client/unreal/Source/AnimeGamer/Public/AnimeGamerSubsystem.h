#pragma once

#include "Containers/Ticker.h"
#include "CoreMinimal.h"
#include "Subsystems/GameInstanceSubsystem.h"

#include "AnimeGamerSubsystem.generated.h"

namespace animegamer_unreal { class Connection; }
class UAnimeGamerGame;

/** What the server plays. The lists are empty unless its bundle reads everyday words: then offer them to players. */
USTRUCT(BlueprintType)
struct FAnimeGamerWelcome
{
	GENERATED_BODY()

	/** Empty: not connected yet. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Bundle;
	/** Columns and rows of a picture. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 Width = 0;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 Height = 0;
	/** Whether a game's Start From Picture is answered. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	bool bStartsFromPictures = false;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	TArray<FString> People;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	TArray<FString> Motions;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	TArray<FString> Places;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	TArray<FString> Hours;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	TArray<FString> Clothes;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	TArray<FString> Manners;
};

DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FAnimeGamerOnConnected, const FAnimeGamerWelcome&, Welcome);

/** Owns the connection and the games. It lives as long as the game instance, so levels come and go. */
UCLASS()
class ANIMEGAMER_API UAnimeGamerSubsystem : public UGameInstanceSubsystem
{
	GENERATED_BODY()

public:
	virtual void Initialize(FSubsystemCollectionBase& Collection) override;
	virtual void Deinitialize() override;

	/**
	 * The game of this name, opened at its first use. It is never null. If the project settings are refused (an address that is
	 * none) each of its calls says so by its On Error.
	 */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	UAnimeGamerGame* GetGame(FName Name);

	/** What the server plays, once On Connected came. */
	UFUNCTION(BlueprintPure, Category = "AnimeGamer")
	FAnimeGamerWelcome GetWelcome() const { return Welcome; }

	/** The server has answered, also each time after a lost connection. */
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnConnected OnConnected;

private:
	friend class UAnimeGamerGame;
	bool Connect();
	bool Tick(float DeltaSeconds);

	UPROPERTY(Transient)
	TMap<FName, TObjectPtr<UAnimeGamerGame>> Games;
	FAnimeGamerWelcome Welcome;
	/** Why the settings were refused; empty if they were not. */
	FString RefusalCode, RefusalText, RefusalWhatToDo;
	TSharedPtr<animegamer_unreal::Connection> Connection;
	FTSTicker::FDelegateHandle Ticker;
};
