#pragma once

#include "CoreMinimal.h"
#include "UObject/Object.h"

#include "AnimeGamerGame.generated.h"

class FAnimeGamerLink;
class UTexture2D;

/** A character's values, 0 to 100. */
USTRUCT(BlueprintType)
struct FAnimeGamerValues
{
	GENERATED_BODY()

	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 Stamina = 50;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 Social = 50;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 Entertainment = 50;
};

/** What a turn does to the game; comes before its first picture. */
USTRUCT(BlueprintType)
struct FAnimeGamerState
{
	GENERATED_BODY()

	/** How much the pictures move: 1 (hardly) to 5 (a lot). */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 MotionLevel = 0;
	/** The values after this turn. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FAnimeGamerValues Character;
	/** The values to put on the screen. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FAnimeGamerValues Shown;
};

DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FAnimeGamerOnOpened, const FString&, Token);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FAnimeGamerOnState, const FAnimeGamerState&, State);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_TwoParams(FAnimeGamerOnProgress, float, Fraction, float, SecondsLeft);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FAnimeGamerOnFrame, UTexture2D*, Texture);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_TwoParams(FAnimeGamerOnDone, int32, Turns, float, Seconds);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_ThreeParams(FAnimeGamerOnError, const FString&, Code, const FString&, Text, const FString&, WhatToDo);
DECLARE_DYNAMIC_MULTICAST_DELEGATE(FAnimeGamerOnClipEnd);

/** One game on the server. The subsystem owns it; it outlives levels. */
UCLASS(BlueprintType)
class ANIMEGAMER_API UAnimeGamerGame : public UObject
{
	GENERATED_BODY()

public:
	/** Play a turn. While one runs this is refused, unless that one was cancelled: "say this instead". */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	bool Say(const FString& Instruction);
	/** Stop the running turn: it ends with the error `cancelled`. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void Cancel();
	/** Delete the turns after this one; 0 deletes all. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void Rewind(int32 Turn);
	/** Go on with the game of this token, in place of this one. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void Resume(const FString& InToken);
	/** Keep it with a saved game. Empty until On Opened. */
	UFUNCTION(BlueprintPure, Category = "AnimeGamer")
	FString GetToken() const { return Token; }
	/** The picture of this moment, held between turns; none before the first. */
	UFUNCTION(BlueprintPure, Category = "AnimeGamer")
	UTexture2D* GetTexture() const;

	/** Each Say has a number: that of the next one, and that of the delegate that is called now (0: of none). */
	int64 NextTicket() const;
	int64 Ticket() const;

	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnOpened OnOpened;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnState OnState;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnProgress OnProgress;
	/** A picture's time has come, and its texture is written. */
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnFrame OnFrame;
	/** The turn is part of the game and on the server's disk. */
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnDone OnDone;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnError OnError;
	/** All pictures of a finished turn were shown. */
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnClipEnd OnClipEnd;

private:
	friend class UAnimeGamerSubsystem;
	friend class FAnimeGamerLink;
	void ShowPictures();
	void MakeTextures(int32 Width, int32 Height);

	/** The ring. */
	UPROPERTY(Transient)
	TArray<TObjectPtr<UTexture2D>> Textures;
	FString Token;
	TSharedPtr<FAnimeGamerLink> Link;
};
