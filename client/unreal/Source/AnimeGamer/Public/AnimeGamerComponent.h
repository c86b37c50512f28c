#pragma once

#include "AnimeGamerGame.h"
#include "Components/ActorComponent.h"
#include "CoreMinimal.h"

#include "AnimeGamerComponent.generated.h"

/** An actor's view of a game. The game stays when the actor's level goes; the next component of its name goes on with it. */
UCLASS(ClassGroup = (AnimeGamer), meta = (BlueprintSpawnableComponent))
class ANIMEGAMER_API UAnimeGamerComponent : public UActorComponent
{
	GENERATED_BODY()

public:
	virtual void BeginPlay() override;
	virtual void EndPlay(const EEndPlayReason::Type EndPlayReason) override;

	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	bool Say(const FString& Instruction);
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void Cancel();

	/** Which of the subsystem's games. */
	UPROPERTY(EditAnywhere, BlueprintReadOnly, Category = "AnimeGamer")
	FName GameName = TEXT("Game");
	/** From BeginPlay to EndPlay. */
	UPROPERTY(BlueprintReadOnly, Transient, Category = "AnimeGamer")
	TObjectPtr<UAnimeGamerGame> Game;

	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnOffers OnOffers;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnUnderstood OnUnderstood;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnState OnState;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnProgress OnProgress;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnFrame OnFrame;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnClipEnd OnClipEnd;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnDone OnDone;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnError OnError;

private:
	UFUNCTION()
	void HandleOffers(const TArray<FString>& Instructions);
	UFUNCTION()
	void HandleUnderstood(const FAnimeGamerUnderstood& Understood);
	UFUNCTION()
	void HandleState(const FAnimeGamerState& State);
	UFUNCTION()
	void HandleProgress(float Fraction, float SecondsLeft);
	UFUNCTION()
	void HandleFrame(UTexture2D* Texture, int32 Turn, int32 Index);
	UFUNCTION()
	void HandleClipEnd(int32 Turn);
	UFUNCTION()
	void HandleDone(int32 Turns, float Seconds);
	UFUNCTION()
	void HandleError(const FString& Code, const FString& Text, const FString& WhatToDo);
};
